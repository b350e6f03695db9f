// How numbers and ranks are written: the rules of `words.py`, which a test compares. Times are microseconds.

export function duration(us) {
  if (us < 0) return `-${duration(-us)}`;
  for (const [unit, size, limit] of [
    ["µs", 1, 999.5],
    ["ms", 1e3, 999.5],
    ["s", 1e6, 59.95],
  ]) {
    const number = threeDigits(us / size);
    if (us / size < limit) return number === "0" ? "0 s" : `${number} ${unit}`;
  }
  const seconds = Math.floor(us / 1e6 + 0.5);
  if (seconds < 3600) return sixtieths(seconds, "m", "s");
  return sixtieths(Math.floor(us / 60e6 + 0.5), "h", "m");
}

// `2m 05s` or `1h 02m`; `2m` where nothing is left over.
function sixtieths(count, unit, part) {
  const rest = count % 60;
  return `${Math.floor(count / 60)}${unit}${rest ? ` ${String(rest).padStart(2, "0")}${part}` : ""}`;
}

export function bytes(count) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let power = 0;
  let size = count;
  while (size >= 999.5 && power < prefixes.length - 1) {
    size /= 1000;
    power += 1;
  }
  return `${threeDigits(size)} ${prefixes[power]}B`;
}

export function integer(number) {
  return number.toLocaleString("en-US");
}

export function plural(count, one) {
  return `${integer(count)} ${one}${count === 1 ? "" : "s"}`;
}

// A moment on the axis: as many digits as the distance of two ticks needs.
export function moment(us, distance) {
  if (us === 0) return "0";
  const [unit, size] = distance >= 1e5 ? ["s", 1e6] : distance >= 1e2 ? ["ms", 1e3] : ["µs", 1];
  const digits = Math.max(0, -Math.floor(Math.log10(distance / size) + 1e-9));
  return `${(us / size).toFixed(Math.min(digits, 3))} ${unit}`;
}

// `rank 3`, `ranks 0, 1, and 5`, `ranks 0-3 and 7`; of many, `ranks 0, 8, …, 248 (every 8th)` or the first of them.
export function nameRanks(ranks) {
  const numbers = [...ranks].sort((a, b) => a - b);
  const spans = [];
  for (const rank of numbers) {
    if (spans.at(-1)?.at(-1) === rank - 1) spans.at(-1).push(rank);
    else spans.push([rank]);
  }
  const words = spans.flatMap((span) => (span.length > 2 ? [`${span[0]}-${span.at(-1)}`] : span));
  return `rank${numbers.length > 1 ? "s" : ""} ${fewSpans(numbers, words)}`;
}

const MOST_SPANS = 8;

function fewSpans(numbers, words) {
  if (words.length <= MOST_SPANS) return listing(words);
  const distance = numbers[1] - numbers[0];
  if (numbers.every((number, place) => number === numbers[0] + place * distance))
    return `${numbers[0]}, ${numbers[1]}, …, ${numbers.at(-1)} (every ${ordinal(distance)})`;
  const told = words.slice(0, MOST_SPANS - 1);
  const until = Number(String(told.at(-1)).split("-").at(-1));
  return listing([...told, `${numbers.filter((number) => number > until).length} more`]);
}

function listing(words) {
  const last = words.at(-1);
  return words.length > 2 ? `${words.slice(0, -1).join(", ")}, and ${last}` : words.join(" and ");
}

function ordinal(number) {
  const last = [11, 12, 13].includes(number % 100) ? 0 : number % 10;
  return `${number}${{ 1: "st", 2: "nd", 3: "rd" }[last] ?? "th"}`;
}

export function clip(text, longest) {
  return text.length <= longest ? text : `${text.slice(0, longest - 1).trimEnd()}…`;
}

export function capital(sentence) {
  return sentence.slice(0, 1).toUpperCase() + sentence.slice(1);
}

function threeDigits(number) {
  const scale = number < 10 ? 100 : number < 100 ? 10 : 1;
  return String(Math.floor(number * scale + 0.5) / scale);
}
