/**
 * Parses a recording of `gwctl record`: one JSON object per line. Users may edit the file, so errors contain the line
 * number.
 */
import { z } from "zod";
import { readLines } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { RecordedRequest, RecordedTraffic } from "../../record/recorded-request.ts";

/** Older lines of a longer recording are ignored. */
const RECORDING = peerInput("file/recording");
const RECORDED_REQUEST = peerInput("file/recorded-request");

const LAST_MOMENT = 8.64e15;

const text = z.string();
const item = z.object({ name: text, target: text }).optional();
const line = z.object({
  id: text,
  at: z.number().min(0).max(LAST_MOMENT),
  durationMs: z.number(),
  listener: text,
  method: text.min(1),
  scheme: z.enum(["http", "https"]),
  host: text,
  path: text.startsWith("/"),
  query: text,
  source: text,
  client: text.optional(),
  identity: text.optional(),
  route: text.nullable(),
  status: z.number().nullable(),
  code: text.nullable(),
  subject: text.nullable(),
  policies: z.array(text),
  principals: z.array(text),
  claims: z.record(text, z.unknown()).optional(),
  apiKey: z.record(text, z.unknown()).optional(),
  mcp: z
    .object({
      methodName: text.optional(),
      target: text.optional(),
      tool: item,
      prompt: item,
      resource: z.object({ uri: text, target: text }).optional(),
    })
    .optional(),
  llm: z.record(text, z.unknown()).optional(),
  headers: z.array(text),
});

export function parseRecording(content: string): RecordedTraffic {
  const lines = readLines(RECORDING, content);
  const records: RecordedRequest[] = [];
  for (const [index, written] of lines.entries()) {
    if (written.trim() === "") continue;
    let value: unknown;
    try {
      value = readJson(RECORDED_REQUEST, written);
    } catch {
      throw new Error(`line ${index + 1}: not JSON`);
    }
    const parsed = line.safeParse(value);
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      throw new Error(`line ${index + 1}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "no recorded request"}`);
    }
    records.push(parsed.data as RecordedRequest);
  }
  const inOrder = records.slice(-RECORDING.maxItems).sort((one, other) => one.at - other.at);
  return { firstAt: inOrder[0]?.at, [Symbol.iterator]: () => inOrder.values() };
}
