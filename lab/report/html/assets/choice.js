// The chosen step, which list, picture, slider and timeline share. Number 0: none.

export function makeChoice(steps) {
  const listeners = [];
  return {
    number: 0,
    set(wanted, origin) {
      const next = Math.max(0, Math.min(steps.length, wanted));
      if (next === this.number) return;
      this.number = next;
      for (const listener of listeners) listener(steps[next - 1], origin);
    },
    move(by) {
      this.set(Math.max(1, this.number + (this.number ? by : 1)));
    },
    onChange(listener) {
      listeners.push(listener);
    },
  };
}
