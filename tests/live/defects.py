"""Tests of the service's safety must be able to fail: put a defect back, and see its test fail.

`make defects` copies the sources, changes one place in the copy at a time, and runs the test that names the promise. A test that passes in spite of
the defect, and a place that is not there any more, are told and end with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LONGEST = 600.0  # seconds of one test, which a defect may make wait
PATIENCE = "60"  # seconds that such a test waits for what does not come; 300 s in other runs, where the machine may be busy


class Defect(NamedTuple):
    """A place in the sources, what stands there, what stood there with the defect, and the test that sees it."""

    name: str
    file: str
    now: str
    before: str
    test: str


def check(name: str, file: str, now: str, before: str, test: str) -> Defect:
    return Defect(name, f"src/slotwise/{file}", now, before, f"tests/{test}")


DEFECTS = (
    check("1 a repeated commit is not looked for in the store", "live/store/sqlite.py",
          "            if again and connection.execute", "            if False and connection.execute",
          "live/test_failover.py::test_a_commit_whose_answer_was_lost_is_there_once"),
    check("1 no look at the fence before answers and starts", "live/loop.py",
          "            self._insist(self.store.hold)", "            pass",
          "live/test_failover.py::test_an_idle_writer_notices_that_another_has_taken_over"),
    check("1 any writer may commit", "live/store/sqlite.py",
          'if connection.execute("SELECT epoch FROM writer").fetchone()[0] != self.epoch:', "if False:",
          "live/test_failover.py::test_an_old_writer_neither_answers_nor_starts_for_the_new_one"),
    check("2 a folder of another store is taken", "live/home.py",
          "if mark is not None and mark.identity != known.identity:", "if False:",
          "live/test_home.py::test_two_stores_of_one_folder"),
    check("2 a store of another machine is taken", "live/home.py", "if not is_same_machine(before, this_machine()):", "if False:",
          "live/test_home.py::test_a_store_of_another_machine"),
    check("2 a link is another store", "live/store/sqlite.py", "Path(os.path.realpath(path))", "Path(os.path.abspath(path))",
          "live/test_home.py::test_a_link_to_a_database_is_the_same_store"),
    check("3 a token goes to another host in clear", "live/addresses.py",
          'if token is not None and parts.scheme == "http" and not is_here(host):', "if False:",
          "live/test_way_in.py::test_no_token_is_sent_in_clear_to_another_host"),
    check("3 URL and token of two sources", "live/addresses.py",
          'token or kept.get("token") or None', 'token or os.environ.get("SLOTWISE_TOKEN") or kept.get("token") or None',
          "live/test_way_in.py::test_url_and_token_come_from_one_source"),
    check("3 a program of another user on the port gets the token", "live/wire.py",
          "        why = stranger(parts.port or 80)", "        why = None",
          "live/test_way_in.py::test_a_port_that_another_user_has_taken_gets_no_token"),
    check("3 the environment names a proxy", "live/wire.py",
          "    sock = socket.create_connection((host, parts.port or (443 if secure else 80)), timeout)",
          """    import os
    through = urlsplit(os.environ.get("HTTP_PROXY", url))
    sock = socket.create_connection((through.hostname, through.port), timeout)""",
          "live/test_way_in.py::test_no_proxy_sees_what_goes_to_this_machine"),
    check("4 bodies are read before the token", "live/api/gate.py",
          "if length != 0 and caller is None:", "if False:",
          "live/test_gate.py::test_no_body_is_read_before_the_caller_is_known"),
    check("4 one size for all bodies", "live/api/gate.py",
          "return LARGEST.get(path, LARGEST_OTHER)", "return 63_000_000",
          "live/test_gate.py::test_sizes_of_bodies"),
    check("4 refusals come at once", "live/api/gate.py", 'await asyncio.sleep(limits.refused("" if caller is None else caller.token))', "pass",
          "live/test_gate.py::test_refusals_come_after_a_pause"),
    check("4 many connections get many refusals", "live/api/limits.py", "self._refusals[token] = min(goes, now + LONGEST_PAUSE)", "pass",
          "live/test_gate.py::test_refusals_of_one_token_follow_one_another"),
    check("4 objects are not counted", "live/api/submissions.py", "if objects > OBJECTS:", "if False:",
          "live/test_gate.py::test_many_small_values_are_refused_before_they_are_read"),
    check("4 large bodies come without end", "live/api/gate.py", 'if caller.role != "operate" and any(status in REFUSED for status in statuses):', "if False:",
          "live/test_gate.py::test_a_tenant_rests_after_a_large_body_that_was_refused"),
    check("12 one token asks the forecaster at will", "live/api/forecasts.py", 'turns.one(caller.token) if caller.role != "operate" else nullcontext()', "nullcontext()",
          "live/test_gate.py::test_slow_questions_of_one_token_hold_up_no_other"),
    check("4 values are not counted", "live/api/submissions.py", "if many > VALUES:", "if False:",
          "live/test_gate.py::test_many_small_values_are_refused_before_they_are_read"),
    check("4 bodies are parsed on the event loop", "live/api/submissions.py",
          "return function(body) if is_quick else await asyncio.to_thread(function, body)", "return function(body)",
          "live/test_gate.py::test_large_bodies_are_read_without_the_event_loop"),
    check("29 a job cannot submit a job", "live/engines/environment.py",
          '"SLOTWISE_SERVER_NAME": start.server,', '"SLOTWISE_SERVER": start.server,',
          "live/test_way_in.py::test_a_job_can_reach_the_service"),
    check("29 an empty group of another supervisor is removed", "live/engines/supervisor/groups.py",
          "and not processes_in(os.path.join(other, SUPERVISOR)):", "and True:",
          "live/test_trees.py::test_groups_of_a_living_supervisor_are_left_alone"),
    check("30 the demo stands still after a failure", "live/demo.py",
          "        with self._lock:\n            for one in starts:", "        if True:\n            for one in starts:",
          "live/test_demo.py::test_a_server_fails_while_jobs_start"),
    check("5 amounts are not rounded", "live/demands.py",
          "return exact.quantize(QUANTUM, ROUND_CEILING).normalize() + 0", "return exact",
          "live/test_typebook.py::test_tiny_amounts_are_rounded_up_and_hurt_no_other_tenant"),
    check("5 a refused request is remembered", "live/typebook.py",
          "found = Assigned(list(types), dict(self.made), dict(self._owners))",
          "found = Assigned(list(types), self.made, self._owners)",
          "live/test_typebook.py::test_a_refused_request_leaves_no_trace"),
    check("6 a job of 0 CPUs", "live/demands.py", "if main in found and found[main] < least:", "if False:",
          "live/test_typebook.py::test_a_job_takes_at_least_a_little"),
    check("6 processes without end", "live/engines/local.py", 'message["processes"] = self._processes', "pass",
          "live/test_confining.py::test_a_job_starts_no_processes_without_end"),
    check("7 on_loss by a substring", "live/store/sqlite.py", "connection.executemany(\"INSERT INTO spec VALUES (?, ?, ?, ?, ?)\", batch.spec_rows())",
          "connection.executemany(\"INSERT INTO spec VALUES (?, ?, ?, ?, ?)\", [(n, b, 'requeue' if 'requeue' in b else 'fail', *rest) for n, b, _, *rest in batch.spec_rows()])",
          "live/test_store.py::test_what_becomes_of_a_lost_job_is_no_guess"),
    check("8 an older service may come back", "live/engines/supervisor/talking.py", "if epoch < self.epoch:", "if False:",
          "live/test_local_engine.py::test_an_older_service_is_refused_also_while_no_other_is_there"),
    check("8 signals without a look at the start time", "live/engines/supervisor/processes.py",
          'if not one.pid or start_time(one.pid, zombies=True) not in ("", one.since):', "if not one.pid:",
          "live/test_local_engine.py::test_no_signal_goes_to_a_number_that_another_process_has"),
    check("8 a group without its leader gets no signal", "live/engines/supervisor/processes.py",
          'if not one.pid or start_time(one.pid, zombies=True) not in ("", one.since):',
          "if not one.pid or start_time(one.pid, zombies=True) != one.since:",
          "live/test_local_engine.py::test_a_group_is_ended_after_its_first_process_has_gone"),
    check("8 a damaged line of the log", "live/engines/supervisor/claims.py", "        except (ValueError, IndexError):", "        except ZeroDivisionError:",
          "live/test_local_engine.py::test_a_damaged_log_keeps_no_supervisor_from_starting"),
    check("8 a carriage return is a line of the log", "live/engines/supervisor/claims.py",
          'text = file.read().decode("ascii", "backslashreplace")', 'text = file.read().decode("ascii", "replace").replace("\\r", "\\n")',
          "live/test_supervisor_log.py"),
    check("9 control characters reach terminals", "display/numbers.py", "def printable(text: str) -> str:", "def printable(text: str) -> str:\n    return text\n\n\ndef _printable(text: str) -> str:",
          "cli/test_safe_text.py::test_control_and_bidi_characters_are_written_out"),
    check("9 names are markup", "cli/columns.py", "[printable(cell).replace(", "[__import__('rich.text').text.Text.from_markup(printable(cell)).plain.replace(",
          "cli/test_safe_text.py::test_a_name_that_looks_like_markup_is_only_a_name"),
    check("9 output drives terminals", "display/numbers.py", "return _CONTROL.sub(lambda found: found[1] or ascii(found[0])[1:-1], text).encode()", "return piece",
          "cli/test_safe_text.py::test_output_on_a_terminal_keeps_colours_only"),
    check("10 a stream outlives its token", "live/api/stream.py", "while counted and house.guard.holds(caller):", "while counted:",
          "live/test_gate.py::test_a_stream_ends_when_its_token_is_revoked"),
    check("10 restored tokens hold", "live/store/backup.py", 'if tokens or row[0] != "token")', "if True)",
          "live/test_store.py::test_restored_tokens"),
    check("10 a policy of a backup is taken", "live/store/backup.py", "kept if policy_code else", "kept if True else",
          "live/test_store.py::test_a_policy_of_a_backup_is_code"),
    check("11 an error of a checkpoint ends the loop", "live/retention.py", "        except StoreError as error:\n            log.warning(\"cannot keep a situation",
          "        except ZeroDivisionError as error:\n            log.warning(\"cannot keep a situation",
          "live/test_store_faults.py::test_a_failing_checkpoint_is_no_reason_to_stop"),
    check("11 a copy that cannot be made ends the loop", "live/retention.py",
          "        except Exception:  # no process, no file, no memory: the journal is whole without it", "        except StoreError:",
          "live/test_store_faults.py::test_a_situation_that_cannot_be_written_apart_is_no_reason_to_stop"),
    check("12 several large arrays in one request", "live/api/jobs.py", "if len(new) > 1 and how_many(new) > BULK:", "if False:",
          "live/test_pieces.py::test_requests_with_arrays"),
    check("12 an array is one piece", "live/pieces.py", "return array is not None and at_once is None and len(array) > PIECE", "return False",
          "live/test_pieces.py::test_another_caller_comes_in_between"),
    check("12 large requests stand before small ones", "live/inbox.py", "if request.weight > LARGE:", "if False:",
          "live/test_pieces.py::test_small_requests_pass_large_ones"),
    check("12 large requests never rest", "live/inbox.py", "now + REST * (now - self._large_at), None", "now, None",
          "live/test_pieces.py::test_large_requests_rest_while_small_ones_come"),
    check("12 each stream reads a page for each commit", "live/api/limits.py", "return every - now % every if every > 0.0 else 0.0", "return 0.0",
          "live/test_gate.py::test_streams_of_one_token_share_their_pace"),
    check("12 streams without end", "live/api/limits.py", "if self._open[caller.token] >= self.most:", "if False:",
          "live/test_gate.py::test_one_token_has_a_limit_on_streams"),
    check("13 a backup follows a link", "live/store/backup.py", "    unfinished.unlink(missing_ok=True)", "    # unfinished.unlink",
          "live/test_store.py::test_a_backup_follows_no_link"),
    check("13 a readable store stays so", "live/store/sqlite.py", "                file.chmod(0o600)", "                pass",
          "live/test_store.py::test_a_store_that_others_can_read_is_made_private"),
    check("Low: the reason of /readyz", "live/api/stream.py", 'PlainTextResponse("not ready\\n", 503)', 'PlainTextResponse(f"{loop.trouble}\\n", 503)',
          "live/test_gate.py::test_why_the_service_is_not_ready_is_not_told_to_everybody"),
    check("Low: Origin without port and scheme", "live/api/gate.py", "if from_scheme not in schemes or place_of(rest, from_scheme) != (host, own):", "if place_of(rest, from_scheme)[0] != host:",
          "live/test_gate.py::test_pages_of_other_ports_and_schemes_are_other_sites"),
    check("Low: no headers for browsers", "live/api/gate.py", "*(one for one in HEADERS if one[0] not in names)", "",
          "live/test_gate.py::test_answers_tell_browsers_to_be_careful"),
    check("Login codes void those of others", "live/dashboard/sessions.py", "if code.token == caller.token]", "]",
          "live/test_board.py::test_a_caller_that_asks_for_many_codes_voids_only_its_own"),
    check("A pickle of another user is read", "live/task.py", "if os.fstat(descriptor).st_uid != os.geteuid():", "if False:",
          "live/test_executor.py::test_results_and_calls_of_other_users_are_not_read"),
    check("A console's address executes a program", "cli/console.py", "if named & EXECUTED or", "if",
          "cli/test_console.py"),
    check("A session is used by another origin", "live/dashboard/sessions.py", 'return method in SAFE or "x-slotwise" in headers', "return True",
          "live/test_board.py"),
    check("Every day 1 a restored store gets the outputs of the one before", "live/home.py",
          "if mark is not None and mark.identity != known.identity:", "if False:",
          "live/test_home.py::test_a_store_restored_in_place_executes_its_jobs"),
    check("Every day 2 a relative directory means the service's", "live/spec.py",
          'if path is not None and not path.startswith("/"):\n        raise ValueError(f"{path!r} is relative; send an absolute path")', "if False:\n        raise ValueError",
          "live/test_commands.py::test_a_relative_directory_is_the_callers"),
    check("Every day 3 an edited file is ignored", "live/changes/starting.py", "if plan is not None and plan.changes:", "if plan is not None and plan.changes and ledger.seq == 0:",
          "live/test_changes.py::test_an_edited_file_is_told_and_applied_on_request"),
    check("Every day 4 a job of a tenant reads the tokens", "live/engines/local.py", 'message |= {"hidden": self._hidden, "fixed": self._fixed}', "pass",
          "live/test_confining.py::test_hidden_files_can_be_neither_read_nor_changed"),
    check("Every day 4 a job of a tenant is not marked", "live/api/making.py", "spec = {**spec, CONFINED: True}  # type: ignore[misc]", "pass",
          "live/test_confining.py::test_jobs_of_callers_who_do_not_operate_are_confined"),
    check("Every day 4 a job submitted once more runs as the operator", "live/api/resubmitting.py", 'caller._replace(user=body.get("user")) if caller.may("operate") else caller', "caller",
          "live/test_confining.py::test_jobs_of_callers_who_do_not_operate_are_confined"),
    check("Every day 4 a job operates through the Unix socket", "live/api/connections.py", "None if uid == own != 0 and is_peer_confined(sock) else uid", "uid",
          "live/test_confining.py::test_a_confined_process_is_not_the_user_at_the_socket"),
    check("Every day 4 a job speaks to the supervisor", "live/engines/supervisor/talking.py", "        if is_a_job(newcomer, self._has_strangers):", "        if False:",
          "live/test_confining.py::test_no_job_speaks_to_the_supervisor"),
    check("Every day 5 a job is charged its type", "live/demands.py", "found.setdefault(cluster.resources[main], min(Decimal(1), largest(cluster)[main]))", "pass",
          "live/test_typebook.py::test_a_job_is_charged_what_it_requests"),
    check("Every day 6 waiting ends with the service", "live/client.py", "if not error.passing or now - self._away > self._patience:", "if True:",
          "live/test_restart_commands.py::test_commands_that_follow_bear_a_restart"),
    check("Every day 7 an end has the time at which it was heard", "live/ledger.py", "ended = live.when(fact.at, now)  # before now if the service was away", "ended = now",
          "live/test_ledger.py::test_an_end_that_is_heard_of_later_has_its_own_time"),
    check("Every day 8 cancelling is for waiting jobs", "live/api/cancelling.py", "chosen = [job.id for job in found if job.state in LIVE]", 'chosen = [job.id for job in found if job.state == "waiting"]',
          "live/test_cancelling.py::test_waiting_and_running_ended_and_unknown"),
    check("Every day 9 memory is counted for each process", "live/engines/supervisor/processes.py", "            if used > one.memory:", "            if False:",
          "live/test_trees.py::test_memory_counts_for_all_processes_together"),
    check("Every day 9 stopping ends the group only", "live/engines/supervisor/processes.py", "    return trees.signal_all(rest, number) or is_first", "    return is_first",
          "live/test_trees.py::test_stop_ends_everything_with_grace_and_then_kill"),
    check("Every day 9 processes are not counted for each job", "live/engines/supervisor/groups.py", "if name in offered]", 'if name in offered and name == "memory"]',
          "live/test_trees.py::test_memory_and_processes_are_limited_where_the_hierarchy_can"),
    check("Every day 10 callers wait in silence for a full disk", "live/loop.py", "                    self._tell_unsure()", "                    pass",
          "live/test_store_faults.py::test_callers_are_told_that_the_disk_is_full"),
    check("Every day 10 outputs have no quota", "live/engines/supervisor/outputs.py", "if (written < before or total > quota) and not is_held(path):", "if written < before and not is_held(path):",
          "live/test_local_engine.py::test_outputs_have_a_quota"),
    check("Every day 10 the service lets outputs fill the disk", "live/engines/local.py", "                make_space(str(self.folder))", "                pass",
          "live/test_local_engine.py::test_a_full_disk_is_noticed"),
    check("Every day 10 the supervisor lets outputs fill the disk", "live/engines/supervisor/rounds.py",
          "if now >= self._look_for_space_at and not make_space(self._folder):", "if False:",
          "live/test_local_engine.py::test_a_full_disk_is_noticed"),
    check("Every day: an end that is told again after a restart is trouble", "live/loop.py", "                    self._recall(fact)", "                    pass",
          "live/test_faults.py::test_an_end_that_is_told_again_after_a_restart"),
    check("Every day: a warning that never comes", "live/api/making.py", "    check_warning(spec, limit)", "    pass",
          "live/test_time_limits.py::test_a_warning_needs_a_limit"),
    check("Every day: an array that is not there is cancelled", "live/api/cancelling.py", 'errors[what.array] = f"there is no array {what.array}"', "pass",
          "live/test_cancelling.py::test_an_array_that_is_not_there"),
    check("Every day 10 a replaced database is not noticed", "live/store/sqlite.py", "if (found.st_dev, found.st_ino) != (self._file.st_dev, self._file.st_ino):", "if False:",
          "live/test_home.py::test_a_deleted_or_replaced_database_is_noticed"),
    check("Every day 11 a signal at the end hides the exit code", "live/engines/slurm_records.py",
          'code=$(cat {end}.new 2>/dev/null || echo 137)  # the inner shell was killed', 'code=$?',
          "live/test_slurm_records.py::test_a_signal_at_the_end_does_not_hide_the_code"),
    check("Every day: a key with other content", "live/loop.py", "        if content_of(job.name, job.body, len(job.array or [0])) != before:", "        if False:",
          "live/test_gate.py::test_a_key_stands_for_one_content"),
    check("Every day: a text is a command", "live/client.py", "    if isinstance(argv, str | bytes) or not isinstance(argv, Iterable):", "    if not isinstance(argv, Iterable):",
          "live/test_way_in.py::test_a_text_is_no_command"),
    check("Every day: a list is cut without a word", "cli/listing.py", "            if total > limit:", "            if False:",
          "live/test_commands.py::test_status_and_lists"),
    check("Every day: an empty server stays draining", "live/api/models.py", '"drained" if server.status == "draining" and not jobs else server.status', "server.status",
          "live/test_cancelling.py::test_a_draining_server_without_jobs_is_drained"),
    check("Every day: explain says nothing of a job that is being stopped", "live/explaining.py", "if live is not None and live.stop_asked:", "if False:",
          "live/test_cancelling.py::test_a_job_that_is_being_stopped"),
    check("Every day: an argument that is not UTF-8", "cli/light.py", "        if not is_text(word):", "        if False:",
          "cli/test_light.py::test_mistakes"),
    check("Every day: half-open connections are kept", "live/api/connections.py", "            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)", "            pass",
          "live/test_gate.py::test_a_connection_that_sends_no_request_is_closed"),
    check("Every day: a backup of a store that is not there", "live/store/__init__.py", 'if store.ask("SELECT epoch FROM writer")[0][0]:', "if True:",
          "live/test_store.py::test_reading_makes_no_store"),
)  # fmt: skip


def is_there(defect: Defect) -> bool:
    """Return whether the place of a defect and its test are still there. `make test` asks this of each."""
    file, _, name = defect.test.partition("::")
    has_test = (ROOT / file).is_file() and (not name or f"def {name}(" in (ROOT / file).read_text())
    return has_test and (ROOT / defect.file).read_text().count(defect.now) == 1


def failed(defect: Defect, folder: Path) -> str:
    """Return what the test says of a copy with the defect."""
    shutil.copytree(ROOT / "src", folder / "src", dirs_exist_ok=True)
    if not is_there(defect):
        return "the place is not there"
    path = folder / defect.file
    path.write_text(path.read_text().replace(defect.now, defect.before))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        str(ROOT / defect.test.partition("::")[0]),
    ]
    if "::" in defect.test:
        command[-1] += "::" + defect.test.partition("::")[2]
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(folder / "src"), "SLOTWISE_PATIENCE": PATIENCE},
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        return "fails"  # a test that waits for what does not come
    return {0: "PASSES", 1: "fails"}.get(ended.returncode, f"cannot be run: {ended.stdout[-300:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="defects whose name begins so")
    given = parser.parse_args()
    wrong = 0
    for defect in DEFECTS:
        if not defect.name.startswith(given.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            said = failed(defect, Path(folder))
        wrong += said != "fails"
        print(f"{said}: {defect.name} | {defect.test}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
