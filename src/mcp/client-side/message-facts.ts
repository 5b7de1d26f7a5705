/**
 * What CEL, the access log and the trace may read of a message: its method, its session, and the tool, prompt or
 * resource it is about, under the target's own name. The arguments of a call are revealed later, to whoever reads them.
 */
import type { McpFacts } from "../../core/facts.ts";
import type { CalledTool } from "../../core/mcp-arguments.ts";
import type { Names } from "../aggregation/names.ts";
import { namedIn } from "../protocol/access.ts";
import type { ClientMessage } from "../protocol/json-rpc.ts";

export function factsOf(message: ClientMessage | undefined, sessionId: string | undefined, names: Names): McpFacts {
  const facts: McpFacts = {};
  if (sessionId !== undefined) facts.sessionId = sessionId;
  if (message === undefined || message.kind === "response") return facts;
  facts.methodName = message.method;
  const only = names.targets.length === 1 ? names.targets[0] : undefined;
  if (only !== undefined) facts.target = only;
  const about = message.kind === "request" ? namedIn(message) : undefined;
  if (about === undefined) return facts;
  const found = names.isPrefixed ? names.inward(about.kind, about.name) : { target: only ?? "", name: about.name };
  // A name that belongs to no target is unknown: it will be refused as such.
  if (found === undefined) return facts;
  const { target, name } = found;
  if (target !== "") facts.target = target;
  if (about.kind === "tool") facts.tool = { name, target };
  else if (about.kind === "prompt") facts.prompt = { name, target };
  else facts.resource = { uri: name, target };
  return facts;
}

/** The call that these facts are about, with its arguments. */
export function calledTool(message: ClientMessage | undefined, { tool }: McpFacts): CalledTool | undefined {
  if (tool === undefined || message?.kind !== "request") return undefined;
  return { facts: tool, args: message.params.arguments };
}
