// Begins the page: unpacks the data, then every part of the page that has an element.

import { makeChoice } from "lab/choice";
import { startKeys } from "lab/keys";
import { fillLegend } from "lab/legend";
import { startLogs } from "lab/logs";
import { buildModel } from "lab/model";
import { startStep } from "lab/step";
import { startSteps } from "lab/steps";
import { makeSortable } from "lab/tables";
import { startTheme } from "lab/theme";
import { startTimeline } from "lab/timeline";
import { unpack } from "lab/unpack";
import { integer } from "lab/words";

export async function start() {
  const model = buildModel(await unpack(document.getElementById("data")));
  const choice = makeChoice(model.stepCount);
  const logs = startLogs(model.logs);
  const timeline = startTimeline(model, choice, logs);
  startTheme(document.getElementById("theme"), timeline.restyle);
  startKeys(choice, timeline);
  fillLegend(document.getElementById("legend"), model);
  for (const table of document.querySelectorAll(".sortable")) makeSortable(table);
  onClick("zoom-in", () => timeline.zoomBy(2));
  onClick("zoom-out", () => timeline.zoomBy(0.5));
  onClick("zoom-all", timeline.showAll);
  onClick("zoom-step", timeline.showStep);
  if (model.stepCount) {
    startSteps(model, choice);
    startStep(model, choice);
    startSlider(model, choice);
    choice.set(firstChoice(model), "start");
  }
  document.documentElement.dataset.ready = "true";
}

function startSlider(model, choice) {
  const slider = document.getElementById("slider");
  const position = document.getElementById("position");
  slider.addEventListener("input", () => choice.set(Number(slider.value), "slider"));
  onClick("previous", () => choice.move(-1));
  onClick("next", () => choice.move(1));
  choice.onChange((number) => {
    if (number) slider.value = number;
    position.textContent = number ? `${integer(number)} of ${integer(model.stepCount)}` : "none chosen";
  });
}

// What went wrong is shown first; where nothing did, the first step.
function firstChoice(model) {
  const wrong = model.steps.state.findIndex((index) => model.word(index) !== "completed");
  return wrong < 0 ? 1 : wrong + 1;
}

function onClick(id, action) {
  document.getElementById(id).addEventListener("click", () => action());
}
