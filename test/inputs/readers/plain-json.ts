/** Hostile inputs of entries whose only reader is the JSON reader. */
import { type InputId, peerInput } from "../../../src/base/peer-inputs.ts";
import { type JsonInput, readJson } from "../../../src/json/read-json.ts";
import { type Hostile, hostile } from "../hostile.ts";
import { jsonShapes } from "../shapes.ts";

const IDS = [
  "admin-client/configuration-edit",
  "client/a2a-message",
  "client/charged-body",
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
  "mcp-server/stdio-message",
  "thread/admin-response",
] as const satisfies readonly InputId[];

export const plainJsonInputs = Object.fromEntries(
  IDS.map((id) => [
    id,
    hostile<string>({ shapes: jsonShapes(), read: (text) => readJson(peerInput(id) as JsonInput, text) }),
  ]),
) as Record<(typeof IDS)[number], Hostile>;
