// Lines of the log: search, and choice of rank and stream.

import { integer, plural } from "lab/words";

export function startLogs(data) {
  const list = document.getElementById("log");
  if (!list) return { show() {}, text: () => "" };
  const rows = [...list.children];
  const search = document.getElementById("log-search");
  const rank = document.getElementById("log-rank");
  const stream = document.getElementById("log-stream");
  const count = document.getElementById("log-count");
  let texts = null;

  function filter() {
    const wanted = search.value.toLowerCase();
    texts ??= rows.map((row) => row.lastElementChild.textContent.toLowerCase());
    let shown = 0;
    rows.forEach((row, i) => {
      const fits =
        (!wanted || texts[i].includes(wanted)) &&
        (!rank.value || data.rank[i] === Number(rank.value)) &&
        (!stream.value || data.stream[i] === Number(stream.value));
      row.hidden = !fits;
      if (fits) shown += 1;
    });
    const all = shown === rows.length;
    count.textContent = all ? plural(shown, "line") : `${integer(shown)} of ${plural(rows.length, "line")}`;
  }

  for (const control of [search, rank, stream]) control.addEventListener("input", filter);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    search.value = "";
    filter();
  });
  return {
    text: (index) => rows[index].lastElementChild.textContent,
    // Bring a line into view, even if the filter hides it now.
    show(index) {
      rows[index].hidden = false;
      for (const row of list.querySelectorAll(".here")) row.classList.remove("here");
      rows[index].classList.add("here");
      rows[index].scrollIntoView({ block: "center" });
    },
  };
}
