// A stretch of time that was chosen, which timeline and tables share; without a choice, the whole run.

export function makeRange([start, finish]) {
  const listeners = [];
  const range = {
    begin: start,
    end: finish,
    whole: true,
    set(one, other) {
      const [begin, end] = [one, other].map((moment) => Math.round(Math.max(start, Math.min(finish, moment))));
      range.begin = Math.min(begin, end);
      range.end = Math.max(begin, end);
      range.whole = range.begin <= start && range.end >= finish;
      for (const listener of listeners) listener(range);
    },
    clear() {
      range.set(start, finish);
    },
    onChange(listener) {
      listeners.push(listener);
    },
  };
  return range;
}
