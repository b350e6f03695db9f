// Lines of the log: search, and choice of rank and stream.

import { integer, plural } from "lab/words";

export function startLogs(lines) {
  const list = document.getElementById("log");
  if (!list) return {};
  const rows = [...list.children];
  const texts = rows.map((row) => row.lastElementChild.textContent);
  const [search, rank, stream, count] = ["search", "rank", "stream", "count"].map((name) =>
    document.getElementById(`log-${name}`),
  );

  function filter() {
    const wanted = search.value.toLowerCase();
    rows.forEach((row, i) => {
      const fits = (control, number) => !control.value || Number(control.value) === number;
      row.hidden = !(
        texts[i].toLowerCase().includes(wanted) &&
        fits(rank, lines[i].rank) &&
        fits(stream, lines[i].stream)
      );
    });
    const shown = rows.filter((row) => !row.hidden).length;
    count.textContent = (shown < rows.length ? `${integer(shown)} of ` : "") + plural(rows.length, "line");
  }

  for (const control of [search, rank, stream]) control.addEventListener("input", filter);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    search.value = "";
    filter();
  });
  return {
    text: ({ number }) => texts[number - 1],
    // Bring a line into view, even if the filter hides it now.
    show({ number }) {
      const row = rows[number - 1];
      row.hidden = false;
      list.querySelector(".here")?.classList.remove("here");
      row.classList.add("here");
      row.scrollIntoView({ block: "center" });
    },
  };
}
