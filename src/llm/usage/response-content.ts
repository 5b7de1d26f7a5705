/**
 * Reads the text and the finish reason from a response in any dialect while it is delivered.
 */
import { decompress, isEncoded } from "../../base/decompress.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { createSseParser } from "../../http/sse.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { exceedsItems } from "../../json/parse-cost.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { awsEventText } from "./response-usage.ts";
import { createEventStreamReader, findOutputText, parseEvent } from "./stream-events.ts";

const CONTENT = peerInput("llm-provider/recorded-content");
const COMPRESSED = peerInput("llm-provider/compressed-content");
const STREAM = peerInput("llm-provider/event-stream");
const AWS_STREAM = peerInput("llm-provider/bedrock-stream");

const MAX_CONTENT_BYTES = CONTENT.maxBytes;
/** A response without any of these keys, such as embeddings, is not parsed. */
const MAY_HAVE_TEXT =
  /"(?:\w*[fF]inish_?[rR]eason|stop_?[rR]eason|status|text|content|parts|output|delta|candidates|choices)"/;
/** If only the finish reason is needed, server-sent events that do not match are not parsed. */
const MAY_FINISH =
  /"(?:finish_reason|stop_reason|finishReason|stopReason)"\s*:\s*"|"response\.(?:completed|incomplete|failed)"/;

interface ContentReader {
  data(chunk: Buffer): void;
  /** May be called before the response is complete. */
  end(): ContentReport;
}

export interface ContentReport {
  readonly finish: string | undefined;
  /** False if some content was too large or could not be read. */
  readonly isWhole: boolean;
}

/** If `onText` is omitted, only the finish reason is read. */
export function createContentReader(
  contentType = "",
  contentEncoding?: string,
  onText?: (text: string) => void,
): ContentReader {
  if (isEncoded(contentEncoding)) return createEncoded(contentType, contentEncoding, onText);
  if (contentType.startsWith("text/event-stream")) return createSse(onText);
  if (contentType.startsWith("application/vnd.amazon.eventstream")) return createAws(onText);
  return createWhole((bytes) => {
    const text = bytes.toString("utf8");
    if (!MAY_HAVE_TEXT.test(text)) return { finish: undefined, isWhole: true };
    const value = tryReadJson(CONTENT, text);
    if (value === undefined && exceedsItems(CONTENT, text)) return { finish: undefined, isWhole: false };
    // Gemini streams without `alt=sse` are one array of events.
    const parts = (Array.isArray(value) ? value : [value]).filter(isMembers);
    let finish: string | undefined;
    for (const part of parts) {
      finish = findFinish(part) ?? finish;
      emitText(onText, findOutputText(part) + wholeText(part));
    }
    return { finish, isWhole: true };
  });
}

function createSse(onText: ((text: string) => void) | undefined): ContentReader {
  let finish: string | undefined;
  let isWhole = true;
  const parser = createSseParser(STREAM, ({ data }) => {
    if (onText === undefined && !MAY_FINISH.test(data)) return;
    const event = parseEvent(data);
    if (event === undefined) return;
    finish = findFinish(event) ?? finish;
    emitText(onText, findOutputText(event));
  });
  return readable(
    (chunk) => parser.push(chunk),
    () => ({ finish, isWhole }),
    () => {
      isWhole = false;
    },
  );
}

function createAws(onText: ((text: string) => void) | undefined): ContentReader {
  let finish: string | undefined;
  let isWhole = true;
  const reader = createEventStreamReader(AWS_STREAM, ({ payload }) => {
    const event = parseEvent(awsEventText(payload));
    if (event === undefined) return;
    finish = findFinish(event) ?? finish;
    emitText(onText, findOutputText(event));
  });
  return readable(
    (chunk) => reader.push(chunk),
    () => ({ finish, isWhole }),
    () => {
      isWhole = false;
    },
  );
}

function readable(push: (chunk: Buffer) => void, end: () => ContentReport, failed: () => void): ContentReader {
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
): ContentReader {
  return createWhole((bytes) => {
    const decoded = decompress(COMPRESSED, bytes, contentEncoding);
    if (decoded === undefined) return { finish: undefined, isWhole: false };
    const inner = createContentReader(contentType, undefined, onText);
    inner.data(decoded);
    return inner.end();
  });
}

function createWhole(read: (bytes: Buffer) => ContentReport): ContentReader {
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

function emitText(onText: ((text: string) => void) | undefined, text: string): void {
  if (text !== "") onText?.(text);
}

function findFinish(event: Members): string | undefined {
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

/** Complete Messages, Responses, and Converse responses and their stream events hold their text in different fields. */
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
