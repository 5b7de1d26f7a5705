/**
 * Node's own HTTP parser (llhttp), called directly: a second, independent reader of the same bytes, and what stands
 * before our edge in the running gateway.
 */
import { createRequire } from "node:module";

interface Parser {
  initialize(type: number, resource: object): void;
  execute(bytes: Buffer): number | Error;
  finish(): Error | undefined;
  close(): void;
  [callback: number]: unknown;
}

interface ParserClass {
  new (): Parser;
  readonly REQUEST: number;
  readonly RESPONSE: number;
  readonly kOnHeaders: number;
  readonly kOnHeadersComplete: number;
  readonly kOnBody: number;
  readonly kOnMessageComplete: number;
}

const { HTTPParser, methods } = createRequire(import.meta.url)("_http_common") as {
  HTTPParser: ParserClass;
  methods: readonly string[];
};

export interface NodeMessage {
  readonly major: number;
  readonly minor: number;
  readonly method: string;
  readonly url: string;
  readonly status: number;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly isComplete: boolean;
  readonly shouldKeepAlive: boolean;
}

export interface NodeReading {
  readonly messages: readonly NodeMessage[];
  readonly error: Error | undefined;
}

/** `hasNoBody`: the answer to a HEAD request. */
export function readWithNode(
  type: "request" | "response",
  bytes: Buffer,
  { hasNoBody = false, endsHere = true }: { hasNoBody?: boolean; endsHere?: boolean } = {},
): NodeReading {
  const parser = new HTTPParser();
  parser.initialize(type === "request" ? HTTPParser.REQUEST : HTTPParser.RESPONSE, {});
  const messages: { -readonly [Name in keyof NodeMessage]: NodeMessage[Name] }[] = [];
  let early: string[] = [];
  let earlyUrl = "";
  parser[HTTPParser.kOnHeaders] = (headers: string[], url: string) => {
    early = early.concat(headers);
    earlyUrl += url;
  };
  parser[HTTPParser.kOnHeadersComplete] = (
    major: number,
    minor: number,
    headers: string[] | undefined,
    method: number,
    url: string | undefined,
    status: number,
    _statusText: string,
    _upgrade: boolean,
    shouldKeepAlive: boolean,
  ) => {
    messages.push({
      major,
      minor,
      method: methods[method] ?? "",
      url: url ?? earlyUrl,
      status,
      rawHeaders: headers ?? early,
      body: Buffer.alloc(0),
      isComplete: false,
      shouldKeepAlive,
    });
    early = [];
    earlyUrl = "";
    // 1 tells the parser that no body follows.
    return hasNoBody && status >= 200 ? 1 : 0;
  };
  parser[HTTPParser.kOnBody] = (chunk: Buffer) => {
    const last = messages.at(-1);
    if (last) last.body = Buffer.concat([last.body, chunk]);
  };
  parser[HTTPParser.kOnMessageComplete] = () => {
    const last = messages.at(-1);
    if (last) last.isComplete = true;
  };
  const result = parser.execute(bytes);
  let error = result instanceof Error ? result : undefined;
  if (error === undefined && endsHere) error = parser.finish() ?? undefined;
  // It is no garbage before.
  parser.close();
  return { messages, error };
}
