/**
 * Reads what a model said in an answer as it goes by, in whichever dialect: its words, piece by piece, and why it ended.
 * JSON is held until it is whole, of a stream one event at a time. What is larger than the limits is not read, and the
 * report says so.
 */
import { createSseParser } from "../../http/sse.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { exceedsTokens } from "../../json/parse-cost.ts";
import { createEventStreamReader } from "../encoding/aws-event-stream.ts";
import { decodeAnswer, isEncoded } from "../encoding/decode-response.ts";
import { parseEvent } from "../encoding/stream-events.ts";
import { textOf } from "./event-content.ts";
import { awsEventText } from "./response-usage.ts";

/** A JSON answer, or an encoded one, that is larger than this is not read. */
const MAX_CONTENT_BYTES = 4 * 1024 * 1024;
const MAX_CONTENT_EVENT_BYTES = 2 * 1024 * 1024;
/** Commas, opening brackets and, twice, colons of a JSON answer: parsing them takes up to 40 ms. */
const MAX_CONTENT_TOKENS = 100_000;
/** Where none of these stands nothing is said: embeddings have many numbers and no words. */
const SPEAKS =
  /"(?:\w*[fF]inish_?[rR]eason|stop_?[rR]eason|status|text|content|parts|output|delta|candidates|choices)"/;
/** A cheap test before parsing, where the words are not asked for. */
const MAY_FINISH =
  /"(?:finish_reason|stop_reason|finishReason|stopReason)"\s*:\s*"|"response\.(?:completed|incomplete|failed)"/;

export interface AnswerContent {
  data(chunk: Buffer): void;
  /** The answer ended, as it should or not. */
  end(): ContentReport;
}

export interface ContentReport {
  /** In the words of the dialect: `stop`, `end_turn`, `MAX_TOKENS`. */
  readonly finish: string | undefined;
  /** False if a part was too large to be read. */
  readonly isWhole: boolean;
}

/** `onText` gets the words; without it only the reason of the end is looked for. */
export function createAnswerContent(
  contentType = "",
  contentEncoding?: string,
  onText?: (text: string) => void,
): AnswerContent {
  if (isEncoded(contentEncoding)) return createEncoded(contentType, contentEncoding, onText);
  if (contentType.startsWith("text/event-stream")) return createSse(onText);
  if (contentType.startsWith("application/vnd.amazon.eventstream")) return createAws(onText);
  return createWhole((bytes) => {
    const text = bytes.toString("utf8");
    if (!SPEAKS.test(text)) return { finish: undefined, isWhole: true };
    if (exceedsTokens(text, MAX_CONTENT_TOKENS)) return { finish: undefined, isWhole: false };
    const value = parseText(text);
    // Gemini streams without `alt=sse` are one list of events.
    const parts = (Array.isArray(value) ? value : [value]).filter(isMembers);
    let finish: string | undefined;
    for (const part of parts) {
      finish = finishOf(part) ?? finish;
      tell(onText, textOf(part) + wholeText(part));
    }
    return { finish, isWhole: true };
  });
}

function createSse(onText: ((text: string) => void) | undefined): AnswerContent {
  let finish: string | undefined;
  let isWhole = true;
  const parser = createSseParser(({ data }) => {
    if (onText === undefined && !MAY_FINISH.test(data)) return;
    const event = parseEvent(data);
    if (event === undefined) return;
    finish = finishOf(event) ?? finish;
    tell(onText, textOf(event));
  }, MAX_CONTENT_EVENT_BYTES);
  return readable(
    (chunk) => parser.push(chunk),
    () => ({ finish, isWhole }),
    () => {
      isWhole = false;
    },
  );
}

function createAws(onText: ((text: string) => void) | undefined): AnswerContent {
  let finish: string | undefined;
  let isWhole = true;
  const reader = createEventStreamReader(({ payload }) => {
    const event = parseEvent(awsEventText(payload));
    if (event === undefined) return;
    finish = finishOf(event) ?? finish;
    tell(onText, textOf(event));
  }, MAX_CONTENT_EVENT_BYTES);
  return readable(
    (chunk) => reader.push(chunk),
    () => ({ finish, isWhole }),
    () => {
      isWhole = false;
    },
  );
}

/** A reader that throws on what it cannot read is asked no more. */
function readable(push: (chunk: Buffer) => void, end: () => ContentReport, failed: () => void): AnswerContent {
  let isReadable = true;
  return {
    data(chunk) {
      if (!isReadable) return;
      try {
        push(chunk);
      } catch {
        isReadable = false;
        failed();
      }
    },
    end,
  };
}

function createEncoded(
  contentType: string,
  contentEncoding: string | undefined,
  onText: ((text: string) => void) | undefined,
): AnswerContent {
  return createWhole((bytes) => {
    const decoded = decodeAnswer(bytes, contentEncoding, MAX_CONTENT_BYTES);
    if (decoded === undefined) return { finish: undefined, isWhole: false };
    const inner = createAnswerContent(contentType, undefined, onText);
    inner.data(decoded);
    return inner.end();
  });
}

function createWhole(read: (bytes: Buffer) => ContentReport): AnswerContent {
  let chunks: Buffer[] = [];
  let size = 0;
  return {
    data(chunk) {
      size += chunk.length;
      if (size <= MAX_CONTENT_BYTES) chunks.push(chunk);
      else chunks = [];
    },
    end: () => (size <= MAX_CONTENT_BYTES ? read(Buffer.concat(chunks)) : { finish: undefined, isWhole: false }),
  };
}

function parseText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function tell(onText: ((text: string) => void) | undefined, text: string): void {
  if (text !== "") onText?.(text);
}

/** Why the model ended, if this event or answer says so. */
function finishOf(event: Members): string | undefined {
  for (const choice of list(event.choices)) if (isWord(choice.finish_reason)) return choice.finish_reason;
  for (const candidate of list(event.candidates)) if (isWord(candidate.finishReason)) return candidate.finishReason;
  const { delta, response } = event;
  for (const word of [event.stop_reason, event.stopReason, isMembers(delta) ? delta.stop_reason : undefined])
    if (isWord(word)) return word;
  const whole = isMembers(response) ? response : event;
  return whole.object === "response" ? finishOfResponse(whole) : undefined;
}

function finishOfResponse({ status, incomplete_details }: Members): string | undefined {
  if (isMembers(incomplete_details) && isWord(incomplete_details.reason)) return incomplete_details.reason;
  return isWord(status) && status !== "in_progress" && status !== "queued" ? status : undefined;
}

/** The words of a whole answer whose stream has other members: Messages, Responses and Converse. */
function wholeText(body: Members): string {
  const { output } = body;
  const converse = isMembers(output) && isMembers(output.message) ? list(output.message.content) : [];
  const items = list(output).flatMap((item) => [item, ...list(item.content), ...list(item.summary)]);
  return [...list(body.content), ...converse, ...items].map(blockText).join("");
}

function blockText(block: Members): string {
  const { toolUse, reasoningContent } = block;
  const thought = isMembers(reasoningContent) ? reasoningContent.reasoningText : undefined;
  const { input } = isMembers(toolUse) ? toolUse : block;
  const words = [
    block.text,
    isMembers(thought) ? thought.text : undefined,
    block.refusal,
    block.thinking,
    block.arguments,
    isMembers(input) ? JSON.stringify(input) : undefined,
  ];
  return words.filter(isWord).join("");
}

function list(value: unknown): readonly Members[] {
  return Array.isArray(value) ? value.filter(isMembers) : [];
}

function isWord(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}
