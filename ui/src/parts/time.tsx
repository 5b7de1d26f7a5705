/**
 * Shows a relative time with the exact time on hover. All instances update together, once per second.
 */
import { signal } from "@preact/signals";
import { ageText } from "../../../src/base/format.ts";

const now = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 1_000);

export function Ago({ at }: { at: number | string | undefined }) {
  if (at === undefined) return <span class="muted">–</span>;
  const ms = typeof at === "number" ? at : Date.parse(at);
  if (Number.isNaN(ms)) return <span>{String(at)}</span>;
  const exact = new Date(ms).toISOString();
  return (
    <time dateTime={exact} title={exact}>
      {now.value - ms < 1_500 ? "now" : `${ageText(now.value - ms)} ago`}
    </time>
  );
}

/** Tables show absolute times such as `14:03:07.120`, because relative times would change every row. */
export function ClockTime({ at, title }: { at: number; title?: string }) {
  const date = new Date(at);
  const two = (value: number): string => String(value).padStart(2, "0");
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  return (
    <time dateTime={date.toISOString()} title={title ?? date.toISOString()}>
      {text}
    </time>
  );
}
