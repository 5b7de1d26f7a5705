/**
 * Requests that name a model in every way that a server might read: in the body, path or query, in any encoding,
 * case, depth or method. `readsModel` finds a name as the most lenient server would.
 */
import { request as httpRequest } from "node:http";
import { parseLeniently, stringsOf } from "../lenient-json.ts";

export interface SentRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
  /** Where the body is cut into chunks; none: it is sent with its length. */
  readonly cuts: readonly number[];
}

export const ENCODINGS = [
  ...["utf8", "utf8-bom", "utf16le", "utf16le-bom", "utf16be", "utf16be-bom", "utf32le", "utf32le-bom"],
  ...["utf32be", "utf32be-bom"],
] as const;
export type Encoding = (typeof ENCODINGS)[number];

/** A place for a further model in a body whose `model` is `first`. */
export interface ModelPlace {
  readonly name: string;
  body(first: string, second: string): Record<string, unknown>;
}

const CHAT = { messages: [{ role: "user", content: "x" }] };

export const MODEL_PLACES: readonly ModelPlace[] = [
  { name: "model", body: (_, second) => ({ model: second, ...CHAT }) },
  { name: "models", body: (model, second) => ({ model, models: [model, second], ...CHAT }) },
  { name: "fallbacks", body: (model, second) => ({ model, fallbacks: [second], ...CHAT }) },
  { name: "fallbacks as objects", body: (model, second) => ({ model, fallbacks: [{ model: second }], ...CHAT }) },
  { name: "fallbacks by model", body: (model, second) => ({ model, fallbacks: [{ [model]: [second] }], ...CHAT }) },
  { name: "context_window_fallbacks", body: (model, second) => ({ model, context_window_fallbacks: [second] }) },
  { name: "fallback_models", body: (model, second) => ({ model, fallback_models: second, ...CHAT }) },
  { name: "model_id", body: (model, second) => ({ model, model_id: second, ...CHAT }) },
  { name: "modelName", body: (model, second) => ({ model, modelName: second, ...CHAT }) },
  { name: "draft_model", body: (model, second) => ({ model, speculative: { draft_model: second }, ...CHAT }) },
  { name: "engine", body: (model, second) => ({ model, engine: second, ...CHAT }) },
  { name: "deployment_id", body: (model, second) => ({ model, deployment_id: second, ...CHAT }) },
  { name: "extra_body.model", body: (model, second) => ({ model, extra_body: { model: second }, ...CHAT }) },
  { name: "provider options", body: (model, second) => ({ model, provider: { options: { models: [second] } } }) },
  { name: "tools[].model", body: (model, second) => ({ model, input: "x", tools: [{ type: "i", model: second }] }) },
  {
    name: "tools[].image_generation.model",
    body: (model, second) => ({ model, input: "x", tools: [{ image_generation: { model: second } }] }),
  },
  {
    name: "requests[].params.model",
    body: (model, second) => ({ model, requests: [{ custom_id: "1", params: { model: second, ...CHAT } }] }),
  },
  { name: "session.model", body: (model, second) => ({ model, session: { type: "realtime", model: second } }) },
  { name: "an object", body: (model, second) => ({ model, models: { a: { id: second } }, ...CHAT }) },
];

export function encode(text: string, encoding: Encoding): Buffer {
  const [kind, bom] = encoding.split("-");
  const whole = bom === undefined ? text : `\ufeff${text}`;
  if (kind === "utf8") return Buffer.from(whole);
  if (kind === "utf16le") return Buffer.from(whole, "utf16le");
  if (kind === "utf16be") return Buffer.from(whole, "utf16le").swap16();
  const units = Buffer.alloc([...whole].length * 4);
  for (const [i, one] of [...whole].entries()) units.writeUInt32LE(one.codePointAt(0) ?? 0, i * 4);
  return kind === "utf32le" ? units : units.swap32();
}

/** As Python's `json.loads` does with bytes: by the BOM, else by where the NUL bytes are. */
function decode(bytes: Buffer): string {
  const starts = (...head: number[]): boolean => head.every((byte, i) => bytes[i] === byte);
  const utf32 = (data: Buffer): string => {
    let text = "";
    for (let i = 0; i + 4 <= data.length; i += 4)
      text += String.fromCodePoint(Math.min(data.readUInt32LE(i), 0x10ffff));
    return text;
  };
  const even = (data: Buffer, unit: number): Buffer =>
    Buffer.from(data.subarray(0, data.length - (data.length % unit)));
  if (starts(0xff, 0xfe, 0, 0) || (bytes[0] !== 0 && bytes[1] === 0 && bytes[2] === 0)) return utf32(bytes);
  if (starts(0, 0, 0xfe, 0xff) || starts(0, 0, 0)) return utf32(even(bytes, 4).swap32());
  if (starts(0xff, 0xfe) || (bytes.length > 1 && bytes[1] === 0)) return bytes.toString("utf16le");
  if (starts(0xfe, 0xff) || (bytes.length > 1 && bytes[0] === 0)) return even(bytes, 2).swap16().toString("utf16le");
  return bytes.toString("utf8");
}

/** Whether some server could find the name in what it received. */
export function readsModel(name: string, url: string, body: Buffer): boolean {
  if (decodeURIComponent(url).includes(name)) return true;
  const text = decode(body).replace(/^\ufeff/, "");
  if (text.includes(name) || body.includes(name)) return true;
  const node = parseLeniently(text);
  return node !== undefined && stringsOf(node).some((one) => one.includes(name));
}

export function send(base: string, sent: SentRequest): Promise<{ readonly status: number; readonly text: string }> {
  const { body, cuts } = sent;
  const isCut = cuts.length > 0 && body !== undefined;
  const framing: Record<string, string> =
    body === undefined ? {} : isCut ? { "transfer-encoding": "chunked" } : { "content-length": String(body.length) };
  return new Promise((resolve, reject) => {
    const request = httpRequest(`${base}${sent.path}`, {
      method: sent.method,
      headers: { ...sent.headers, ...framing },
      agent: false,
    });
    request.on("error", reject);
    request.on("upgrade", (response, socket) => {
      socket.destroy();
      resolve({ status: response.statusCode ?? 0, text: "" });
    });
    request.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }));
    });
    if (!isCut) {
      request.end(body);
      return;
    }
    const at = [...new Set(cuts)].filter((cut) => cut > 0 && cut < body.length).sort((a, b) => a - b);
    const pieces = [0, ...at].map((from, i) => body.subarray(from, at[i] ?? body.length));
    const next = (): void => {
      const piece = pieces.shift();
      if (piece === undefined) request.end();
      // The pieces must arrive apart: each goes out after the one before it was written to the socket.
      else request.write(piece, () => setImmediate(next));
    };
    next();
  });
}
