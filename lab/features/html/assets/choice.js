// The chosen step, which list, picture, slider, and timeline share, and the steps to choose from. Number 0: none.

export function makeChoice(steps) {
  const listeners = [];
  const choice = {
    number: 0,
    shown: steps, // in order; a filter may leave fewer than all
    set(wanted, origin) {
      const next = Math.max(0, Math.min(steps.length, wanted));
      if (next === choice.number) return;
      choice.number = next;
      tell(origin);
    },
    // The place in `shown` of the chosen step, or where it would stand.
    place() {
      let [low, high] = [0, choice.shown.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (choice.shown[middle].number < choice.number) low = middle + 1;
        else high = middle;
      }
      return low;
    },
    // Whether the chosen step is among those that are shown.
    stands() {
      return choice.number > 0 && choice.shown[choice.place()]?.number === choice.number;
    },
    // To another one of those that are shown.
    move(by) {
      if (!choice.shown.length) return;
      const from = choice.place() - (choice.stands() || by < 0 ? 0 : 1);
      const next = Math.max(0, Math.min(choice.shown.length - 1, from + by));
      choice.set(choice.shown[next].number);
    },
    show(shown) {
      choice.shown = shown;
      tell("filter");
    },
    onChange(listener) {
      listeners.push(listener);
    },
  };
  function tell(origin) {
    for (const listener of listeners) listener(steps[choice.number - 1], origin);
  }
  return choice;
}
