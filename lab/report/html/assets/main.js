// Begins the page: unpacks the data, then every part of the page that has an element.

import { makeChoice } from "lab/choice";
import { startKeys } from "lab/keys";
import { startLogs } from "lab/logs";
import { readModel } from "lab/model";
import { startStep } from "lab/step";
import { startSteps } from "lab/steps";
import { makeSortable } from "lab/tables";
import { startTheme } from "lab/theme";
import { startTimeline } from "lab/timeline";
import { integer } from "lab/words";

export async function start() {
  const model = await readModel(byId("data"));
  const choice = makeChoice(model.steps);
  const timeline = startTimeline(model, choice, startLogs(model.logs));
  startTheme(byId("theme"), timeline.restyle);
  startKeys(choice, timeline);
  for (const table of document.querySelectorAll(".sortable")) makeSortable(table);
  byId("zoom-in").onclick = () => timeline.zoomBy(2);
  byId("zoom-out").onclick = () => timeline.zoomBy(0.5);
  byId("zoom-all").onclick = timeline.showAll;
  byId("zoom-step").onclick = timeline.showStep;
  if (model.steps.length) {
    startSteps(model, choice);
    startStep(model, choice);
    startSlider(model, choice);
    // What went wrong is shown first; where nothing did, the first step.
    choice.set(model.steps.find((step) => step.state !== "completed")?.number ?? 1);
  }
  document.documentElement.dataset.ready = "true";
}

function startSlider({ steps }, choice) {
  const slider = byId("slider");
  slider.oninput = () => choice.set(slider.valueAsNumber);
  byId("previous").onclick = () => choice.move(-1);
  byId("next").onclick = () => choice.move(1);
  choice.onChange((step) => {
    if (step) slider.value = step.number;
    byId("position").textContent = step ? `${integer(step.number)} of ${integer(steps.length)}` : "none chosen";
  });
}

function byId(id) {
  return document.getElementById(id);
}
