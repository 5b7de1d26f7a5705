import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { parseSource } from "../text/yaml-source.ts";
import { plainDollarWarnings } from "./environment-values.ts";
import { configSchema } from "./schema.ts";

function warningsOf(text: string): string[] {
  const [document] = finish(parseSource("f", text, { set_one: "x" })).documents;
  assert.ok(document);
  return plainDollarWarnings(configSchema, document, { set_one: "x" }).map((warning) => warning.toLine());
}

const model = (key: string): string =>
  `llm: { models: [{ name: m, provider: openAI, params: { model: m, apiKey: ${key} } }] }`;
const target = (fields: string): string => `mcp: { targets: [{ name: a, ${fields} }] }`;
const TAIL = "`$NAME` without braces is plain text: write `${NAME}` for the variable";

const warned: [name: string, text: string, place: string][] = [
  ["a provider's key", model("$OPENAI_API_KEY"), "1:74: llm.models[0].params.apiKey"],
  ["a key in quotes", model('"$OPENAI_API_KEY"'), "1:74: llm.models[0].params.apiKey"],
  ["a variable of another spelling that is set", model("$set_one"), "1:74: llm.models[0].params.apiKey"],
  [
    "a variable for a child",
    target("stdio: { cmd: x, env: { GITHUB_TOKEN: $GITHUB_TOKEN } }"),
    "1:67: mcp.targets[0].stdio.env.GITHUB_TOKEN",
  ],
  [
    "a header with its scheme",
    target('mcp: { url: "http://h/mcp", headers: { authorization: Bearer $TOKEN } }'),
    "1:83: mcp.targets[0].mcp.headers.authorization",
  ],
  [
    "a key in a list",
    "gateways: { default: { port: 0 } }\nroutes: [{ policies: { apiKey: { keys: [{ key: $ALICE_KEY }] } } }]",
    "2:48: routes[0].policies.apiKey.keys[0].key",
  ],
];
for (const [name, text, place] of warned) {
  test(`warns of ${name} without braces`, () => assert.deepEqual(warningsOf(text), [`f:${place}: ${TAIL}`]));
}

const quiet: [name: string, text: string][] = [
  ["a variable in braces", model("${set_one}")],
  ["a password that begins with a dollar sign", model("$ecret-1")],
  ["one that could be a name, but nobody has set it", model("$ecret")],
  ["a dollar sign in the middle", model("a$OPENAI_API_KEY")],
  [
    "the hash of a password",
    "gateways: { default: { port: 0 } }\nroutes: [{ policies: { basicAuth: { htpasswd: 'u:$2y$05$ABC' } } }]",
  ],
  ["what is no secret", "gateways: { default: { port: 0 } }\nroutes: [{ name: $NAME }]"],
  ["an empty file", "{}"],
];
for (const [name, text] of quiet) {
  test(`says nothing about ${name}`, () => assert.deepEqual(warningsOf(text), []));
}

test("no value stands in a warning", () => {
  assert.doesNotMatch(warningsOf(model("$PLANTED")).join(), /PLANTED/);
});
