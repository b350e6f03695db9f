// The chosen step, which list, picture, slider and timeline share. 0: none.

export function makeChoice(stepCount) {
  const listeners = [];
  let number = 0;
  return {
    get number() {
      return number;
    },
    set(wanted, origin = "") {
      const next = Math.max(0, Math.min(stepCount, wanted));
      if (next === number) return;
      number = next;
      for (const listener of listeners) listener(number, origin);
    },
    move(by) {
      this.set(number === 0 ? 1 : Math.max(1, number + by), "keys");
    },
    onChange(listener) {
      listeners.push(listener);
    },
  };
}
