/**
 * Reads the attributes of a call for rules and limits. Rejects a call in which an agent could read another task or
 * conversation: names in another spelling (Go ignores case, Python and protobuf accept `task_id`), several different
 * values, and values that are not strings.
 */
import type { A2aAttributes } from "../../core/request-attributes.ts";
import { foldCase } from "../../json/syntax.ts";
import { JsonRpcProblem } from "../../mcp/protocol/json-rpc.ts";

type Params = Readonly<Record<string, unknown>>;

const INVALID_PARAMS = -32602;
/** The members of `params` and of its `message` that identify the task or context of a call. */
const NAMES = ["id", "taskId", "contextId", "message", "metadata"];
const BY_FOLDED_NAME: ReadonlyMap<string, string> = new Map(NAMES.map((name) => [folded(name), name]));
/** In protocol 1.0, `id` of these methods names a configuration of the task `taskId`. */
const WITH_CONFIG_ID = /^(?:Create|Set|Get|Delete)TaskPushNotificationConfig$/;

/** `method` is the name that the client wrote, and `canonical` that of protocol 0.3. `id` is the ID of the call. */
export function callAttributes(method: string, canonical: string, params: Params, id: string | undefined) {
  const attributes: A2aAttributes = { method: canonical };
  const reject = (problem: string): never => {
    throw new JsonRpcProblem(INVALID_PARAMS, `Invalid params: ${problem}`, id);
  };
  const message = params.message ?? {};
  if (!isObject(message)) return reject('"message" must be an object');
  for (const name of [...Object.keys(params), ...Object.keys(message)]) {
    const meant = BY_FOLDED_NAME.get(folded(name));
    if (meant !== undefined && meant !== name) reject(`the key ${JSON.stringify(name)} must be written "${meant}"`);
  }
  const only = (name: string, values: readonly unknown[]): string | undefined => {
    const [first, ...others] = new Set(values.filter((value) => value !== undefined && value !== null && value !== ""));
    if (others.length > 0) reject(`${JSON.stringify(name)} has several values`);
    if (first !== undefined && typeof first !== "string") reject(`${JSON.stringify(name)} must be a string`);
    return first as string | undefined;
  };
  const taskId = only("taskId", [params.taskId, message.taskId, ...(WITH_CONFIG_ID.test(method) ? [] : [params.id])]);
  const contextId = only("contextId", [params.contextId, message.contextId]);
  const metadata = { ...objectOf(params.metadata), ...objectOf(message.metadata) };
  const skill = textOf(metadata.skillId) ?? textOf(metadata.skill);
  if (taskId !== undefined) attributes.taskId = taskId;
  if (contextId !== undefined) attributes.contextId = contextId;
  if (skill !== undefined) attributes.skill = skill;
  return attributes;
}

function folded(name: string): string {
  return foldCase(name.replaceAll("_", ""));
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function objectOf(value: unknown): Params {
  return isObject(value) ? value : {};
}

function isObject(value: unknown): value is Params {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
