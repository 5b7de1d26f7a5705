/**
 * Formats numbers, money, times, sizes, and shares, in the web UI, in gwctl, and in explanations.
 */

export function rateText(perSecond: number): string {
  if (perSecond === 0) return "0/s";
  if (perSecond < 0.1) return `${Number((perSecond * 60).toPrecision(2))}/min`;
  if (perSecond < 10) return `${perSecond.toFixed(1)}/s`;
  return `${wholeText(perSecond)}/s`;
}

export function wholeText(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** Shortens large numbers, such as `1.2M`, for axes and cards. */
export function shortText(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e9) return `${trimmed(value / 1e9)}B`;
  if (size >= 1e6) return `${trimmed(value / 1e6)}M`;
  if (size >= 1e4) return `${trimmed(value / 1e3)}k`;
  return Number.isInteger(value) ? wholeText(value) : trimmed(value);
}

/** Shows more digits for fractions of a cent. */
export function dollarText(value: number): string {
  if (value === 0) return "$0";
  const size = Math.abs(value);
  if (size >= 1e4) return `$${shortText(value)}`;
  if (size >= 0.1) return `$${value.toFixed(2)}`;
  return `$${Number(value.toPrecision(2))
    .toFixed(Math.min(9, 1 - Math.floor(Math.log10(size))))
    .replace(/0+$/, "")}`;
}

/** Has three digits at most. */
export function trimmed(value: number): string {
  return String(Number(value.toPrecision(3)));
}

export function durationText(ms: number | undefined): string {
  if (ms === undefined || Number.isNaN(ms)) return "–";
  // The limits are half a digit below the next unit, so that rounding never shows `1000 ms` or `60.0 s`.
  if (ms < 0.9995) return `${Math.round(ms * 1000)} µs`;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9_995 ? 2 : 1)} s`;
  return ageText(ms);
}

export function ageText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)} d`;
  return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
}

export function bytesText(bytes: number): string {
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  const units = ["KiB", "MiB", "GiB"];
  let value = bytes;
  let unit = "";
  for (const one of units) {
    if (value < 1024) break;
    value /= 1024;
    unit = one;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
}

export function percentText(share: number): string {
  if (share <= 0) return "0%";
  const percent = share * 100;
  return percent < 1 ? "<1%" : `${Math.round(percent)}%`;
}
