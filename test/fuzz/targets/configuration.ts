/**
 * Configuration files with variables: loading ends with a configuration or with problems that say where, a value of the
 * environment never changes the structure of the document, and none is quoted in a message.
 */

import { finish } from "../../../src/base/sliced-work.ts";
import { loadConfig, loadForeign } from "../../../src/config/load/load.ts";
import { parseSource } from "../../../src/config/text/yaml-source.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

type Input = { readonly text: string; readonly values: readonly string[] };

/** Long and unlike any word, so that finding it in a message means something. */
const PLANTED = "Zq9s3cr3tW";

/** Names and the number of elements; every scalar is the same. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shapeOf);
  if (typeof value !== "object" || value === null) return "scalar";
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, shapeOf(inner)]));
}

const LINES = [
  "config:", "  logging: { level: info }", "gateways:", "  web:", "    port: 3000", "    port: ${A}", "    port: ${B:-3000}", "routes:", "- name: x", "- name: ${A}",
  "  backends:", "  - host: ${A}", "  - host: 127.0.0.1:80", "  - mcp:", "      targets:", "      - name: ${C}", "        stdio: { cmd: x, args: [${A}, '${B}'] }",
  "  policies:", "    authorization: { rules: ['${A}'] }", "    apiKey: { keys: [{ key: '${A}' }] }", "    apiKey: { keys: [{ key: ${A} }] }", "    cors: { allowOrigins: [${B}] }",
  "    timeout: { requestTimeout: ${A} }", "    rateLimit: { local: [{ requests: ${B}, window: 1m }] }", "llm:", "  models: [{ name: ${C}, provider: openai, apiKey: ${A} }]",
  "    transformations: { request: { set: { x-a: ${A} } } }", "# ${A}", "$${A}", "x: \"${A}\"", "x: |", "  ${A} text", "${A}: 1", "---", "kind: GatewayPolicy", "- &a 1", "- *a", "? a", "!!x y", "\t", "'", "\"", "${", "${A", "${1}", "}", "]",
]; // biome-ignore format: a table
const VALUES = [
  "3000", "plain", "a: b", "- x", "{a: 1}", "[1]", "\n- x\n", "\nroutes: []", "'", '"', "#", "null", "true", "1e3", "*a", "&a", "!!x", "${B}", "$${", "", "---\n", "\t", "é", "%", ": ", "0x1F", "~",
]; // biome-ignore format: a table

function environmentOf(values: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    ["A", "B", "C"].flatMap((name, i) => (values[i] === undefined ? [] : [[name, values[i] as string]])),
  );
}

export const configuration = defineTarget<Input>({
  name: "configuration",
  seeds: [
    {
      text: "gateways:\n  web:\n    port: ${A}\nroutes:\n- name: x\n  gateways: [web]\n  backends:\n  - host: ${B}\n",
      values: ["3000", "127.0.0.1:80"],
    },
    {
      text: "mcp:\n  port: 3000\n  targets:\n  - name: a\n    stdio: { cmd: x, args: ['${A}'] }\n",
      values: ["{a: 1}"],
    },
  ],
  smokeCases: 100,
  generate: (random: Random) => ({
    text: random.list(random.oneIn(4) ? 14 : 6, () => random.pick(LINES)).join("\n"),
    values: [0, 1, 2].map(() => (random.oneIn(3) ? `${PLANTED}${random.pick(VALUES)}` : random.pick(VALUES))),
  }),
  run({ text, values }) {
    const environment = environmentOf(values);
    const sources = [{ file: "f.yaml", text }];
    const loaded = finish(loadForeign(finish(loadConfig(sources, environment)), sources, environment));
    const lines = text.split(/\r\n|\r|\n/).length;
    if (!loaded.ok) {
      expect(loaded.problems.length > 0, "refused without a problem");
      for (const problem of loaded.problems) {
        const line = problem.toLine();
        expect(problem.position !== undefined, `no place: ${line}`);
        expect(
          problem.position.line >= 1 && problem.position.line <= lines + 1 && problem.position.column >= 1,
          `no such place: ${line}`,
        );
        expect(!line.includes(PLANTED) || text.includes(PLANTED), `a value of the environment is quoted: ${line}`);
      }
    }
    // The same text with plain words for values: nothing but scalars may differ. Without a variable nothing can.
    if (text.includes("${")) checkStructure(text, environment);
    return loaded.ok
      ? `loaded ${loaded.config.routes.length} ${loaded.config.gateways.length}`
      : (loaded.problems[0]?.message.replace(/[`"'].*|\d+/g, "…").slice(0, 50) ?? "");
  },
});

function checkStructure(text: string, environment: Record<string, string>): void {
  const one = finish(parseSource("f.yaml", text, environment));
  if (one.problems.length > 0 || one.documents.some(({ variableNames }) => variableNames !== undefined)) return;
  const other = finish(parseSource("f.yaml", text, { A: "w", B: "w", C: "w" }));
  if (other.problems.length === 0)
    expectSame(
      one.documents.map(({ value }) => shapeOf(value)),
      other.documents.map(({ value }) => shapeOf(value)),
      "the structure",
    );
}
