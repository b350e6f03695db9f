// Begins a page of grades: the table of all can be sorted.

import { makeSortable } from "lab/tables";
import { startTheme } from "lab/theme";

export function start() {
  startTheme(document.getElementById("theme"), () => {});
  const table = document.getElementById("grades");
  if (table) makeSortable(table);
  document.documentElement.dataset.ready = "true";
}
