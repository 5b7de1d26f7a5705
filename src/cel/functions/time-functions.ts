/**
 * Replaces timestamp functions of the library, which computes fields in the machine's local time zone and interprets
 * whole numbers as milliseconds, although CEL specifies seconds.
 */
import { type CelFunc, CelScalar, celFunc, celMethod, objectType } from "@bufbuild/cel";
import { TimestampSchema, timestampDate, timestampFromMs } from "@bufbuild/protobuf/wkt";

const { INT, STRING } = CelScalar;
const TIMESTAMP = objectType(TimestampSchema);

/** Each function reads a UTC field of a date that was shifted by the offset of the requested time zone. */
const PARTS: Readonly<Record<string, (clock: Date) => number>> = {
  getFullYear: (clock) => clock.getUTCFullYear(),
  getMonth: (clock) => clock.getUTCMonth(),
  getDate: (clock) => clock.getUTCDate(),
  getDayOfMonth: (clock) => clock.getUTCDate() - 1,
  getDayOfWeek: (clock) => clock.getUTCDay(),
  getDayOfYear: (clock) => Math.floor((clock.getTime() - Date.UTC(clock.getUTCFullYear(), 0, 1)) / 86_400_000),
  getHours: (clock) => clock.getUTCHours(),
  getMinutes: (clock) => clock.getUTCMinutes(),
  getSeconds: (clock) => clock.getUTCSeconds(),
  getMilliseconds: (clock) => clock.getUTCMilliseconds(),
};

export const timeFunctions: CelFunc[] = [
  celFunc("timestamp", [INT], TIMESTAMP, (seconds) => timestampFromMs(Number(seconds) * 1000)),
  ...Object.entries(PARTS).flatMap(([name, read]) => [
    celMethod(name, TIMESTAMP, [], INT, function () {
      return BigInt(read(timestampDate(this.message)));
    }),
    celMethod(name, TIMESTAMP, [STRING], INT, function (zone) {
      return BigInt(read(clockIn(zone, timestampDate(this.message))));
    }),
  ]),
];

/** `zone` is an offset (`+02:00`, `-08:00`, `02:00`) or an IANA time zone name. */
function clockIn(zone: string, instant: Date): Date {
  const offset = /^([+-]?)(\d\d):(\d\d)$/.exec(zone);
  if (offset !== null) {
    const minutes = Number(offset[2]) * 60 + Number(offset[3]);
    return new Date(instant.getTime() + (offset[1] === "-" ? -minutes : minutes) * 60_000);
  }
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  const parts = new Map(format.formatToParts(instant).map((part) => [part.type, Number(part.value)]));
  const part = (type: Intl.DateTimeFormatPartTypes) => parts.get(type) ?? 0;
  return new Date(
    Date.UTC(part("year"), part("month") - 1, part("day"), part("hour"), part("minute"), part("second")) +
      instant.getUTCMilliseconds(),
  );
}
