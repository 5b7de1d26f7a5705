/**
 * `GET /debug/recording`: what is recorded of the last requests, one JSON object per line, oldest first. Neither bodies nor
 * credentials are in it. `follow=true` goes on with the requests that end from then on.
 */
import type { Clock } from "../../base/clock.ts";
import { type FactRing, readSegments } from "../../pipeline/records/fact-ring.ts";
import { readRecord } from "../../pipeline/records/recorded-request.ts";
import { type AdminEndpoint, type AdminSink, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

/** Below the time that readers wait for a byte. */
const STILL_THERE_MS = 5_000;
const JSON_LINES = "application/jsonl";
/** A reader that is slower loses lines rather than holding memory. */
const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

export function recordingEndpoint(facts: FactRing, clock: Clock): AdminEndpoint {
  return {
    path: ADMIN_PATHS.recording,
    doc: "The last 10,000 requests without bodies and credentials, as JSON lines; `follow=true` for those to come.",
    GET({ query }) {
      const segments = facts.segments();
      if (query.get("form") === "segments")
        return { status: 200, type: "application/octet-stream", body: Buffer.concat(segments) };
      const follow = query.get("follow") ?? "false";
      if (follow !== "true" && follow !== "false") return textAnswer(400, "follow is true or false\n");
      return {
        status: 200,
        type: JSON_LINES,
        stream: follow === "true" ? (sink) => followed(facts, clock, sink) : (sink) => kept(segments, sink),
      };
    },
  };
}

/** A segment at a time, so that traffic goes on in between. */
function kept(segments: readonly Uint8Array[], sink: AdminSink): void {
  let isOpen = true;
  sink.onClose(() => {
    isOpen = false;
  });
  const next = (index: number): void => {
    const segment = segments[index];
    if (!isOpen) return;
    if (segment === undefined) {
      sink.end();
      return;
    }
    sink.write(lines(readSegments([segment])));
    setImmediate(next, index + 1);
  };
  next(0);
}

/** The first line is empty: from then on nothing is missed. More empty ones say that the gateway is still there. */
function followed(facts: FactRing, clock: Clock, sink: AdminSink): void {
  sink.write("\n");
  const timer = clock.every(STILL_THERE_MS, () => void sink.write("\n"));
  const withdraw = facts.follow((text) => {
    const record = readRecord(text);
    if (record && sink.bufferedBytes() < MAX_UNREAD_BYTES) sink.write(lines([record]));
  });
  sink.onClose(() => {
    timer.cancel();
    withdraw();
  });
}

function lines(records: readonly object[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}
