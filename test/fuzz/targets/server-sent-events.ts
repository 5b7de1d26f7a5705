/**
 * Server-sent events: the same as a reader written from the standard finds, at every chunking; what is written is read
 * again as it was; and what takes usage out of a stream leaves every other event.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { createSseParser, encodeSseEvent, type SseEvent, SseTooLarge } from "../../../src/http/sse.ts";
import { createUsageHider } from "../../../src/llm/usage/hide-usage.ts";
import { createUsageReader } from "../../../src/llm/usage/response-usage.ts";
import { usageEventAt } from "../../../src/llm/usage/stream-events.ts";
import type { Random } from "../../support/random.ts";
import { waysToArrive } from "../pieces.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

const MAX_BYTES = 4_000;
const STREAM = peerInput("mcp-server/event-stream").upTo(MAX_BYTES);
const MANY_EVENTS = 6;

function read(pieces: readonly Buffer[]): { events: SseEvent[]; isRefused: boolean } {
  const events: SseEvent[] = [];
  const parser = createSseParser(STREAM, (event) => void events.push(event));
  const refusal = refusalOf(() => {
    for (const piece of pieces) parser.push(piece);
  }, SseTooLarge);
  return { events, isRefused: refusal !== undefined };
}

/** From the standard (section 9.2.6), over the whole text; an event counts once its blank line has come. */
function reference(bytes: Buffer): SseEvent[] {
  const events: SseEvent[] = [];
  const start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  const lines = bytes.toString("latin1", start).split(/\r\n|\r|\n/);
  let data: string[] = [];
  let event = "";
  let id: string | undefined;
  let retry: number | undefined;
  for (const raw of lines.slice(0, -1)) {
    const line = Buffer.from(raw, "latin1").toString("utf8");
    if (line === "") {
      if (data.length > 0 || id !== undefined || retry !== undefined)
        events.push({ event: event === "" ? "message" : event, data: data.join("\n"), id, retry });
      data = [];
      event = "";
      id = undefined;
      retry = undefined;
      continue;
    }
    const [, field = line, value = ""] = /^([^:]*): ?(.*)$/s.exec(line) ?? [];
    if (field === "data") data.push(value);
    else if (field === "event") event = value;
    else if (field === "id" && !value.includes("\0")) id = value;
    else if (field === "retry" && /^[0-9]{1,9}$/.test(value)) retry = Number(value);
  }
  return events;
}

function hidden(pieces: readonly Buffer[]): Buffer {
  const hider = createUsageHider();
  const out: Buffer[] = [];
  for (const piece of pieces) out.push(hider.pass(piece, usageEventAt(piece)) ?? Buffer.alloc(0));
  out.push(hider.flush() ?? Buffer.alloc(0));
  return Buffer.concat(out);
}

function isUsage(event: SseEvent): boolean {
  try {
    const { choices, usage } = JSON.parse(event.data) as { choices?: unknown; usage?: unknown };
    return (
      Array.isArray(choices) &&
      choices.length === 0 &&
      typeof usage === "object" &&
      usage !== null &&
      !Array.isArray(usage)
    );
  } catch {
    return false;
  }
}

function usageIn(pieces: readonly Buffer[]): unknown {
  const reader = createUsageReader("text/event-stream", undefined);
  for (const piece of pieces) reader.data(piece);
  const { usage, responseModel } = reader.finish(true);
  return { usage, responseModel };
}

/** Streams that only have more of the same events teach nothing new, and each case made from them costs more. */
function fewOf(events: readonly SseEvent[]): string {
  return events.length > MANY_EVENTS ? "many" : String(events.length);
}

const PIECES = [
  "data: ", "data:", "data", "event: x", "id: 1", "id:\0", "retry: 5", "retry: -1", ": comment", "\n", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r",
  "\r\r", "a", "é", "😀", "\u00ef\u00bb\u00bf", "[DONE]", "{", "}", " ", "datax: y", ":",
  'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
  'data: {"model":"m","choices":[{"delta":{"content":"hi"}}]}', 'data: {"choices":[],\ndata: "usage":{"prompt_tokens":3}}',
  'data: {"type":"message_start","message":{"model":"c","usage":{"input_tokens":5}}}', 'data: {"usage":{"output_tokens":7}}',
]; // biome-ignore format: a table

export const serverSentEvents = defineTarget<Buffer>({
  name: "server-sent-events",
  seeds: [
    'data: {"model":"m","choices":[{"delta":{"content":"hi"}}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
    ": hello\r\n\r\nevent: x\r\nid: 1\r\ndata: a\r\ndata: b\r\n\r\n",
    "data: a\r\rretry: 5\r\r",
  ].map((text) => Buffer.from(text)),
  smokeCases: 400,
  generate(random: Random) {
    const bytes = Buffer.from(random.text(PIECES, 12));
    if (!random.oneIn(2000)) return bytes;
    return Buffer.concat([bytes, Buffer.from(`data: ${"a".repeat(MAX_BYTES - 20 + random.int(30))}\n\n`)]);
  },
  run(bytes) {
    const whole = read([bytes]);
    const hiddenWhole = hidden([bytes]);
    const usage = usageIn([bytes]);
    for (const pieces of waysToArrive(bytes)) {
      expectSame(read(pieces), whole, "in pieces");
      expectSame(hidden(pieces).toString("latin1"), hiddenWhole.toString("latin1"), "hidden in pieces");
      expectSame(usageIn(pieces), usage, "usage in pieces");
    }
    if (whole.isRefused) return "too large";
    expectSame(whole.events, reference(bytes), "as the standard has it");
    const shown = read([hiddenWhole, Buffer.from("\n\n")]).events;
    for (const event of shown) expect(!isUsage(event), "usage was not hidden");
    for (const event of whole.events) {
      // What is written is somewhat longer, and must still be small enough to be read.
      if (event.data.length + event.event.length + (event.id?.length ?? 0) > MAX_BYTES / 2) continue;
      const again = read([
        Buffer.from(
          encodeSseEvent({ event: event.event, data: event.data, ...(event.id === undefined ? {} : { id: event.id }) }),
        ),
      ]);
      expectSame(
        again.events.map(({ data, id }) => [data, id]),
        [[event.data.replace(/\r\n?/g, "\n"), event.id]],
        "written and read again",
      );
    }
    const found = JSON.stringify(usage).replace(/\d+/g, "n");
    return `${fewOf(whole.events)} ${whole.events.some(isUsage)} ${found} ${fewOf(shown)}`;
  },
});
