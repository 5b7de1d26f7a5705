/** Hostile inputs of entries whose only reader is the JSON reader. */
import { type InputId, peerInput } from "../../../src/base/peer-inputs.ts";
import { type JsonInput, readJson } from "../../../src/json/read-json.ts";
import { type Hostile, hostile, MAX_MEASURED_BYTES } from "../hostile.ts";
import { jsonShapes } from "../shapes.ts";

const IDS = [
  "admin-client/configuration-edit",
  "client/a2a-message",
  "client/expression-json",
  "client/llm-option",
  "client/llm-tool-result",
  "client/mcp-part",
  "command-line/json",
  "demo-client/message",
  "file/configuration-dump",
  "file/imported-text",
  "file/recorded-request",
  "file/store-change",
  "gateway/admin-response",
  "gateway/kept-trace",
  "gateway/mcp-message",
  "gateway/recorded-attributes",
  "gateway/redacted-value",
  "gateway/rehearsal-report",
  "gateway/request-record",
  "gateway/resource-metadata",
  "gateway/trace-event",
  "gateway/validation-report",
  "history/packed-rows",
  "history/row",
  "identity-provider/obtained-token",
  "kubernetes-api/watch-event",
  "kubernetes-plugin/credential",
  "llm-provider/token-count",
  "mcp-server/tool",
  "thread/admin-response",
] as const satisfies readonly InputId[];

const byLimits = new Map<string, Hostile>();

/** The same limits cost the same work, so they are counted and measured once. */
function plainJson(id: (typeof IDS)[number]): Hostile {
  const input = peerInput(id) as JsonInput;
  const { maxBytes, maxItems, maxDepth } = input;
  const limits = [Math.min(maxBytes, MAX_MEASURED_BYTES), maxItems, maxDepth].join();
  const known = byLimits.get(limits);
  const own = known ?? hostile<string>({ shapes: jsonShapes(), read: (text) => readJson(input, text) });
  byLimits.set(limits, own);
  return own;
}

export const plainJsonInputs = Object.fromEntries(IDS.map((id) => [id, plainJson(id)])) as Record<
  (typeof IDS)[number],
  Hostile
>;
