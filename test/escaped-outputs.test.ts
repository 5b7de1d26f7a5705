/**
 * Text from a client, a server, or a document is escaped by everything that prints it: logs in both formats, log
 * files, standard streams, gwctl, admin responses, error responses, Kubernetes statuses, YAML, and the UI. The inputs
 * are random strings of UTF-16 units, so they contain lone surrogates.
 */
import assert from "node:assert/strict";
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import type { VNode } from "preact";
import { jsonResponse, redactedEndpoint, textResponse } from "../src/admin/server/endpoint.ts";
import { peerInput } from "../src/base/peer-inputs.ts";
import { readYaml } from "../src/base/read-yaml.ts";
import { escapeControls, escapeLines, escapeOutput } from "../src/base/safe-text.ts";
import { yamlText } from "../src/base/yaml-text.ts";
import { escapingTerminal, paintOf, printable, type Terminal } from "../src/cli/terminal/terminal.ts";
import { conditionMessage } from "../src/config/documents/status.ts";
import { GatewayError } from "../src/core/errors.ts";
import { errorReply, jsonReply } from "../src/core/reply.ts";
import { safeJson } from "../src/json/safe-json.ts";
import { errorText } from "../src/mcp/protocol/json-rpc.ts";
import { openLogOutput, openRotatingFile } from "../src/record/log/log-output.ts";
import { createLogging, type LogFormat, parseLogFilter } from "../src/record/log/logger.ts";
import { escapeNode } from "../ui/src/frame/escaped-nodes.ts";
import { visible } from "../ui/src/parts/format.ts";
import { fakeClock } from "./support/fake-clock.ts";

const CASES = Number(process.env.ESCAPE_CASES ?? 2_000);
/** Unicode's own classes, not the list of the code. */
const FORGING = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the colors of a terminal
const COLOR = /\u001b\[\d{1,2}m/g;
const SAMPLES = [
  "a\r\nlevel=error forged",
  "\x1b[2J\x1b]0;title\x07",
  "\x9b31mred\x85forged",
  "\u2028next\u2029",
  "abc\u202ecba\u2066\u2069\u200f\u061c",
  "\ud800 alone",
  "plain",
];

const unit = fc.oneof(
  fc.integer({ min: 0, max: 0xffff }),
  fc.integer({ min: 0, max: 0xa0 }),
  fc.constantFrom(0x1b, 0x85, 0x9b, 0x61c, 0x200e, 0x2028, 0x2029, 0x202e, 0x2066, 0xd800, 0xdfff),
);
const text = fc.array(unit, { maxLength: 40 }).map((units) => String.fromCharCode(...units));

function assertSafe(output: string, name: string): void {
  const rest = output.replaceAll(/\r?\n|\t/g, "");
  assert.ok(!FORGING.test(rest), `${name}: ${JSON.stringify(output)}`);
}

test("nothing that can forge output passes, and escaped JSON keeps its value", () => {
  fc.assert(
    fc.property(text, (value) => {
      assertSafe(escapeLines(value), "lines");
      assertSafe(escapeControls(value), "line");
      assert.ok(!escapeControls(value).includes("\n"));
      assert.equal(escapeLines(escapeLines(value)), escapeLines(value));
      assert.equal(JSON.parse(escapeControls(JSON.stringify(value))), value);
      assert.deepEqual(JSON.parse(safeJson({ [value]: [value] }, 2)), { [value]: [value] });
      assertSafe(escapeOutput(value).replace(COLOR, ""), "output");
      assertSafe(visible(value), "UI");
    }),
    { numRuns: CASES },
  );
});

test("text without such characters is not changed", () => {
  for (const value of ["", "plain", "ü 漢 👨‍👩‍👧 שלום مرحبا", "a\tb", "\\u001b"]) {
    assert.equal(escapeControls(value), value);
    assert.equal(escapeOutput(value), value);
  }
});

test("the line breaks of CSV pass, and other carriage returns do not", () => {
  assert.equal(escapeOutput("a,b\r\nc\rd\r\n"), "a,b\r\nc\\u000dd\r\n");
});

test("only the colors of the gateway itself reach a terminal", () => {
  const colored = paintOf({ hasColor: true })(printable("\x1b[31mname"), "bad");
  assert.equal(escapeOutput(`${colored}\n`), "\x1b[31m\\u001b[31mname\x1b[0m\n");
  for (const code of ["\x1b[8m", "\x1b[38;5;1m", "\x1b[2J", "\x1b[1;1H", "\x1b]8;;x\x07", "\x9b31m"])
    assertSafe(escapeOutput(code), JSON.stringify(code));
});

test("log lines are single lines in both formats, and JSON lines keep the values", () => {
  const parsed = parseLogFilter("info");
  assert.ok(parsed.ok);
  for (const format of ["text", "json"] as const satisfies readonly LogFormat[]) {
    const lines: string[] = [];
    const output = { write: (line: string) => void lines.push(line), dropped: () => 0, flushSync: () => undefined };
    const { logger } = createLogging({ clock: fakeClock(), output, filter: parsed.filter, format });
    fc.assert(
      fc.property(text, text, (message, value) => {
        logger.info(message, { value, list: [value] });
        const line = lines.pop() ?? "";
        assert.equal(line.indexOf("\n"), line.length - 1);
        assertSafe(line, format);
        if (format === "text") return;
        const read = JSON.parse(line);
        assert.deepEqual([read.message, read.value, read.list], [message, value, [value]]);
      }),
      { numRuns: CASES / 4 },
    );
  }
});

test("YAML for a terminal or a file has the same values", () => {
  fc.assert(
    fc.property(text, (value) => {
      const document = { [value]: { list: [value] } };
      const written = yamlText(document);
      assertSafe(written, "YAML");
      if (value.isWellFormed()) assert.deepEqual(readYaml(peerInput("file/kubeconfig"), written), document);
    }),
    { numRuns: CASES / 10 },
  );
});

interface Printer {
  readonly name: string;
  print(value: string, t: TestContext): string | Promise<string>;
}

const printers: readonly Printer[] = [
  { name: "an error response as text", print: (value) => bodyOf(errorReply(badRequest(value))) },
  {
    name: "an error response as JSON",
    print: (value) => bodyOf(errorReply(new GatewayError("authorization_denied", { message: value }))),
  },
  { name: "a JSON response of the gateway", print: (value) => bodyOf(jsonReply(200, { [value]: value })) },
  { name: "a JSON-RPC error", print: (value) => errorText("1", 1, value, { value }) },
  { name: "a JSON response of the admin interface", print: (value) => adminBody(jsonResponse({ value })) },
  {
    name: "a text response of the admin interface",
    async print(value) {
      const endpoint = { path: "/", doc: "", GET: () => textResponse(400, value) };
      const response = await redactedEndpoint(endpoint, { text: (body) => body }).GET?.({} as never);
      return adminBody(response as ReturnType<typeof textResponse>);
    },
  },
  {
    name: "gwctl",
    print(value) {
      let printed = "";
      const add = (added: string): void => {
        printed += added;
      };
      const terminal = escapingTerminal({ out: add, err: add } as Terminal);
      terminal.out(value);
      terminal.err(value);
      return printed.replace(COLOR, "");
    },
  },
  { name: "the message of a Kubernetes condition", print: conditionMessage },
  {
    name: "a text of the UI",
    print(value) {
      const node = { type: null, props: value } as unknown as VNode;
      escapeNode(node);
      return String(node.props);
    },
  },
  {
    name: "an attribute of the UI",
    print(value) {
      const props = { title: value, "aria-label": value, value };
      escapeNode({ type: "input", props } as unknown as VNode);
      assert.equal(props.value, value, "the value of a field is not changed");
      return props.title + props["aria-label"];
    },
  },
  {
    name: "a log output",
    async print(value, t) {
      const path = fileIn(t);
      const clock = fakeClock();
      const output = openLogOutput(openSync(path, "w"), clock);
      output.write(`${value}\n`);
      await output.flushed();
      return readFileSync(path, "utf8").replace(COLOR, "");
    },
  },
  {
    name: "the audit file",
    async print(value, t) {
      const path = fileIn(t);
      const clock = fakeClock();
      const options = { path, maxBytes: 1e6, keep: 1, clock, dropped: () => undefined, changed: () => undefined };
      const file = openRotatingFile(options);
      file.write(`${JSON.stringify({ value })}\n`);
      await file.close();
      const line = readFileSync(path, "utf8");
      assert.equal(JSON.parse(line).value, value);
      return line;
    },
  },
];
for (const { name, print } of printers)
  test(`${name} is escaped`, async (t) => {
    for (const value of SAMPLES) assertSafe(await print(value, t), name);
  });

function badRequest(message: string): GatewayError {
  return new GatewayError("bad_request", { message });
}

function bodyOf({ body }: { readonly body: Buffer | undefined }): string {
  return String(body);
}

function adminBody(response: ReturnType<typeof textResponse>): string {
  assert.ok("body" in response);
  return String(response.body);
}

function fileIn(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "escaped-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "out.log");
}
