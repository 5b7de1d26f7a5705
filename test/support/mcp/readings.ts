/**
 * Returns every call that some server could read in a message, so that tests can check whether any of them is
 * forbidden.
 */
import { type LenientNode, parseLeniently, stringsOf, valuesUnder } from "../lenient-json.ts";

export interface Reading {
  readonly method: string;
  readonly name: string;
}

/** Where each method names what it is about; keys without case. */
const CALLS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  "tools/call": [["name"]],
  "prompts/get": [["name"]],
  "resources/read": [["uri"]],
  "resources/subscribe": [["uri"]],
  "resources/unsubscribe": [["uri"]],
  "completion/complete": [
    ["ref", "name"],
    ["ref", "uri"],
  ],
  "subscriptions/listen": [["notifications", "resourcesubscriptions"]],
};

/** All calls in a text that is one message or a batch. Text that is no JSON is read by nobody. */
export function readings(text: string): Reading[] {
  const node = parseLeniently(text);
  if (node === undefined) return [];
  return (node.kind === "array" ? node.items : [node]).flatMap(readingsOf);
}

function readingsOf(message: LenientNode): Reading[] {
  const params = valuesUnder(message, "params");
  return valuesUnder(message, "method")
    .flatMap(stringsOf)
    .map((method) => method.trim().toLowerCase())
    .flatMap((method) =>
      (CALLS[method] ?? [])
        .flatMap((path) => path.reduce((nodes, key) => nodes.flatMap((node) => valuesUnder(node, key)), params))
        .flatMap(stringsOf)
        .map((name) => ({ method, name })),
    );
}
