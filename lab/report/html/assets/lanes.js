// The names of the lanes, beside the canvas: text that can be read, selected and searched.

import { element } from "lab/dom";

export function fillLanes(list, model, lanes, height) {
  list.style.height = `${height}px`;
  const nodes = new Map(model.ranks.map(({ rank, node }) => [rank, node]));
  list.replaceChildren(
    ...lanes.map(({ rank, top, height: tall }) =>
      element(
        "li",
        { class: `rank-${rank}`, "data-rank": rank, style: { top: `${top}px`, height: `${tall}px` } },
        element("span", {}, element("span", { class: "word" }, "rank "), String(rank)),
        element("small", {}, nodes.get(rank) ?? ""),
      ),
    ),
  );
}
