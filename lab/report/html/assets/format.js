// Numbers as people read them. Times are microseconds.

export function duration(us) {
  if (us < 0) return `-${duration(-us)}`;
  if (us < 1e3) return `${us} µs`;
  if (us < 1e6) return `${significant(us / 1e3)} ms`;
  if (us < 60e6) return `${significant(us / 1e6)} s`;
  const seconds = Math.round(us / 1e6);
  return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let size = count;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit ? significant(size) : size} ${units[unit]}`;
}

export function integer(number) {
  return number.toLocaleString("en-US");
}

// A moment on the axis: as many digits as the distance of two ticks needs.
export function moment(us, distance) {
  if (us === 0) return "0";
  const [unit, size] = distance >= 1e5 ? ["s", 1e6] : distance >= 1e2 ? ["ms", 1e3] : ["µs", 1];
  const digits = Math.max(0, -Math.floor(Math.log10(distance / size) + 1e-9));
  return `${(us / size).toFixed(Math.min(digits, 3))} ${unit}`;
}

function significant(number) {
  return String(Number(number.toPrecision(3)));
}
