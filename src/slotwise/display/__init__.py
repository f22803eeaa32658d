"""How things look, in one place: numbers as text, colours, terminal tables, notebook tables, the style of figures."""
