"use strict";
for (const table of document.querySelectorAll("figure.tabular table")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy table";
  button.onclick = () => {
    const lines = [...table.rows].map(row => [...row.cells].map(cell => cell.textContent.trim()).join("\t"));
    const text = lines.join("\n");
    const done = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy table"; }, 1500); };
    if (navigator.clipboard) { navigator.clipboard.writeText(text).then(done, () => select(table)); } else { select(table); }
  };
  table.closest(".scroll").after(button);
}
for (const box of document.querySelectorAll(".scroll")) {  // a table that is wider than the screen says so
  const hint = document.createElement("p");
  hint.className = "swipe";
  hint.textContent = "scroll sideways for more columns →";
  box.before(hint);
  const check = () => { hint.hidden = box.scrollWidth <= box.clientWidth + 2; };
  check();
  addEventListener("resize", check);
}
function select(element) {  // where a page may not write to the clipboard, the reader can
  const range = document.createRange();
  range.selectNodeContents(element);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}
for (const walk of document.querySelectorAll("figure.walk")) {
  const frames = [...walk.querySelectorAll(".steps > li")];
  const range = walk.querySelector("input"), play = walk.querySelector("[data-play]"), output = walk.querySelector("output");
  let now = 0, timer = null;
  const show = step => {
    now = Math.max(0, Math.min(frames.length - 1, step));
    frames.forEach((frame, n) => frame.classList.toggle("now", n === now));
    range.value = now + 1;
    output.textContent = `${now + 1} of ${frames.length}`;
  };
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ play"; };
  walk.querySelector(".steps").classList.add("live");
  walk.querySelector(".buttons").hidden = false;
  for (const button of walk.querySelectorAll("[data-step]")) {
    button.onclick = () => { stop(); show(now + Number(button.dataset.step)); };
  }
  range.oninput = () => { stop(); show(Number(range.value) - 1); };
  play.onclick = () => {
    if (timer) { stop(); return; }
    if (now === frames.length - 1) { show(0); }
    play.textContent = "⏸ pause";
    timer = setInterval(() => { if (now === frames.length - 1) { stop(); } else { show(now + 1); } }, 1600);
  };
  show(0);
}
