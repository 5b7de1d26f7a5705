/** THE list of hostile inputs: every message that a peer can send, with the gateway's reader of it. */
import type { InputId } from "../../src/base/peer-inputs.ts";
import type { Group } from "./growth.ts";
import type { Hostile } from "./hostile.ts";
import { httpInputs } from "./readers/http.ts";
import { identityInputs } from "./readers/identity.ts";
import { llmInputs } from "./readers/llm.ts";
import { mcpInputs } from "./readers/mcp.ts";
import { plainJsonInputs } from "./readers/plain-json.ts";
import { recordInputs } from "./readers/records.ts";
import { requestInputs } from "./readers/requests.ts";
import { serviceInputs } from "./readers/services.ts";

/** Node reads the heads, and SQLite the file. */
type Unreachable = Listed<"backend/http2-head" | "file/history-database">;

type Listed<Id extends InputId> = Id;

export const HOSTILE_INPUTS: Record<Exclude<InputId, Unreachable>, Hostile> = {
  ...httpInputs,
  ...mcpInputs,
  ...llmInputs,
  ...identityInputs,
  ...serviceInputs,
  ...recordInputs,
  ...requestInputs,
  ...plainJsonInputs,
};

const moduleOf = (name: string): string => new URL(`./readers/${name}.js`, import.meta.url).href;

/** Each group is counted in a thread that loads only its module. The slowest are first. */
export const GROUPS: readonly Group[] = [
  { module: moduleOf("records"), inputs: recordInputs },
  { module: moduleOf("llm"), inputs: llmInputs },
  { module: moduleOf("mcp"), inputs: mcpInputs },
  { module: moduleOf("requests"), inputs: requestInputs },
  { module: moduleOf("http"), inputs: httpInputs },
  { module: moduleOf("services"), inputs: serviceInputs },
  { module: moduleOf("identity"), inputs: identityInputs },
  { module: moduleOf("plain-json"), inputs: plainJsonInputs },
];
