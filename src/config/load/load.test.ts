import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { filesOf, loadConfig } from "./load.ts";

/** What is wrong with a configuration, without the file's name. */
function linesOf(text: string): string[] {
  const loaded = finish(loadConfig([{ file: "f", text }], {}));
  return loaded.ok ? [] : loaded.problems.map((problem) => problem.toLine().replace(/^f:/, ""));
}

const limit = (entry: string): string =>
  `gateways: { default: { port: 0 } }\nroutes:\n  - policies:\n      rateLimit: { local: [${entry}] }\n`;
const LOCAL = "routes[0].policies.rateLimit.local[0]";
const rules = (rule: string): string =>
  `gateways: { default: { port: 0 } }\nroutes:\n  - policies:\n      authorization: { rules: [${rule}] }\n`;
const RULE = "routes[0].policies.authorization.rules[0]";

const refused: [name: string, text: string, lines: string[]][] = [
  [
    "ports that are none",
    "gateways: { a: { port: 70000 }, b: { port: -1 }, c: { port: x }, d: { port: 3.5 } }",
    [
      "1:24: gateways.a.port: must be at most 65535",
      "1:44: gateways.b.port: must be at least 0",
      "1:61: gateways.c.port: expected a number, found a string",
      "1:77: gateways.d.port: expected a whole number, found the number 3.5",
    ],
  ],
  [
    "a port twice, in both layouts",
    "gateways: { a: { port: 5001 }, b: { port: 5001 } }\nmcp: { port: 5001, targets: [{ name: x, stdio: { cmd: cat } }] }",
    [
      "1:43: gateways.b.port: port 5001 is already used by gateways.a",
      "2:14: mcp.port: port 5001 is already used by gateways.b",
    ],
  ],
  [
    "a limit of requests and of tokens",
    limit("{ requests: 1, tokens: 2, unit: Hours }"),
    [`4:28: ${LOCAL}: use only one of \`requests\`, \`tokens\`, found requests and tokens`],
  ],
  ["a limit of nothing", limit("{ unit: Hours }"), [`4:28: ${LOCAL}: one of \`requests\`, \`tokens\` is required`]],
  ["a limit of zero", limit("{ requests: 0, unit: Hours }"), [`4:40: ${LOCAL}.requests: must be at least 1`]],
  ["a negative burst", limit("{ requests: 1, unit: Hours, burst: -1 }"), [`4:63: ${LOCAL}.burst: must be at least 0`]],
  [
    "a burst of tokens",
    limit("{ tokens: 1, unit: Hours, burst: 1 }"),
    [`4:61: ${LOCAL}.burst: \`burst\` can only be used with \`requests\``],
  ],
  ["no unit", limit("{ requests: 1 }"), [`4:28: ${LOCAL}.unit: required field is missing`]],
  [
    "a unit in another case",
    limit("{ requests: 1, unit: seconds }"),
    [`4:49: ${LOCAL}.unit: expected "Seconds" or "Minutes" or "Hours", did you mean "Seconds"?`],
  ],
  [
    "a key that is no expression",
    limit("{ requests: 1, unit: Hours, key: 'jwt.sub +' }"),
    [`4:61: ${LOCAL}.key: cel: syntax error at \`+\`: expected a value after \`+\` (column 9 of the expression)`],
  ],
  [
    "a rule of two kinds",
    rules("{ allow: 'true', deny: 'true' }"),
    [`4:49: ${RULE}.deny: cannot be combined with \`allow\``],
  ],
  [
    "a rule of an unknown kind",
    rules("{ alow: 'true' }"),
    [`4:32: ${RULE}.allow: required field is missing`, `4:34: ${RULE}.alow: unknown field, did you mean "allow"?`],
  ],
  ["a rule that is a number", rules("5"), [`4:32: ${RULE}: expected a string or an object`]],
  [
    "a text that is a number to YAML, and says what helps; of a secret only the type is told",
    "gateways: { default: { port: 0 } }\nroutes: [{ name: 5, policies: { apiKey: { keys: [{ key: 12345678 }] } } }]",
    [
      "2:18: routes[0].name: expected a string, found the number 5: put it in quotes",
      "2:57: routes[0].policies.apiKey.keys[0].key: expected a string, found a number: put it in quotes",
    ],
  ],
  [
    "a number where a list is meant; a long one may be a key, and is not told",
    "gateways: { default: { port: 0 } }\nroutes: [{ name: web, policies: { apiKey: { keys: 8199175304087809 } } }, { name: two, policies: { apiKey: { keys: 8080 } } }]",
    [
      "2:51: routes[0].policies.apiKey.keys: expected a list, found a number",
      "2:116: routes[1].policies.apiKey.keys: expected a list, found the number 8080",
    ],
  ],
  ["a list", "- a", ["1:1: expected an object, found a list"]],
];
for (const [name, text, lines] of refused) {
  test(`refuses ${name} [C4]`, () => assert.deepEqual(linesOf(text), lines));
}

const KEY = (value: string): string =>
  `gateways: { default: { port: 0 } }\nroutes: [{ name: web, policies: { apiKey: { keys: [{ key: ${value} }] } } }]`;
const variables: [name: string, value: string, environment: Record<string, string>, lines: string[]][] = [
  ["a number", "${KEY}", { KEY: "12345678" }, []],
  ["true", "${KEY}", { KEY: "true" }, []],
  ["the word null", "${KEY}", { KEY: "null" }, []],
  ["nothing", "${KEY}", { KEY: "" }, ["the environment variable KEY is empty"]],
  ["nothing, in quotes", '"${KEY}"', { KEY: "" }, ["the environment variable KEY is empty"]],
  ["nothing, twice", "${A}${B}", { A: "", B: "" }, ["the environment variables A, B are empty"]],
];
for (const [name, value, environment, lines] of variables) {
  test(`a string field whose variable holds ${name}`, () => {
    const loaded = finish(loadConfig([{ file: "c.yaml", text: KEY(value) }], environment));
    const problems = loaded.ok ? [] : loaded.problems.map(({ message }) => message);
    assert.deepEqual(problems, lines);
    if (!loaded.ok) return;
    const configs = loaded.config.routes.flatMap(({ policies }) => policies.map(({ config }) => config));
    assert.deepEqual(configs, [{ keys: [{ key: environment.KEY }] }]);
  });
}

test("names of an object's own members are names of gateways [C6]", () => {
  const text = "gateways: { constructor: { port: 0 } }\nroutes: [{ name: toString, gateways: [constructor] }]";
  assert.deepEqual(linesOf(text), []);
  assert.deepEqual(linesOf(text.replace("[constructor]", "[hasOwnProperty]")), [
    '2:38: routes[0].gateways: there is no gateway named "hasOwnProperty"',
  ]);
});

test("a gateway whose name is misspelt is suggested, one that is far from all is not", () => {
  const text =
    "gateways: { default: { port: 0 }, edge: { port: 0 } }\nroutes: [{ gateways: defualt }]\nui: { gateways: [egde, west] }";
  assert.deepEqual(linesOf(text), [
    '2:22: routes[0].gateways: there is no gateway named "defualt", did you mean "default"?',
    '3:17: ui.gateways: there is no gateway named "egde", did you mean "edge"?',
    '3:17: ui.gateways: there is no gateway named "west"',
  ]);
});

for (const [text, isEmpty] of [
  ["", true],
  ["# nothing\n", true],
  ["---\n", true],
  ["{}", false],
  ["kind: GatewayPolicy", false],
] as const) {
  test(`${JSON.stringify(text)} is ${isEmpty ? "" : "not "}empty`, () => {
    const loaded = finish(loadConfig([{ file: "f", text }], {}));
    assert.equal(loaded.ok && loaded.isEmpty, isEmpty);
  });
}

test("a folder with more than a thousand files is somebody's mistake", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "many-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (let i = 0; i < 1_000; i++) writeFileSync(join(folder, `${i}.yaml`), "");
  writeFileSync(join(folder, "readme.txt"), "");
  assert.equal(filesOf(folder).length, 1_000);
  writeFileSync(join(folder, "more.yaml"), "");
  assert.throws(() => filesOf(folder), /has 1001 configuration files, the maximum is 1000/);
});

const SECTION = "mcp: { gateway: GATEWAY, targets: [{ name: a, stdio: { cmd: x } }] }";
const sharing: [name: string, text: string, said: string | undefined][] = [
  ["the gateway that it names", SECTION.replace("GATEWAY", "default"), undefined],
  [
    "one that does not exist",
    SECTION.replace("GATEWAY", "defalt"),
    'there is no gateway named "defalt", did you mean "default"?',
  ],
  [
    "a gateway and a port",
    SECTION.replace("GATEWAY", "default, port: 3000"),
    "with `gateway` it listens where that gateway does: leave `port` out",
  ],
  [
    "a gateway and an address",
    SECTION.replace("GATEWAY", "default, address: a"),
    "with `gateway` it listens where that gateway does: leave `address` out",
  ],
];
for (const [name, text, said] of sharing) {
  test(`a section on ${name}: ${said ?? "one listener for both"}`, () => {
    const loaded = finish(loadConfig([{ file: "f", text: `gateways: { default: { port: 0 } }\n${text}\n` }], {}));
    assert.equal(loaded.ok ? undefined : loaded.problems[0]?.message, said);
    if (loaded.ok)
      assert.deepEqual(
        loaded.config.gateways.map((gateway) => gateway.name),
        ["default"],
      );
  });
}

test("a field name that a variable made is shown as the variable", () => {
  for (const text of ["${KEY}: 1", "gateways: { ${KEY}: 1 }", "${KEY}: ${"]) {
    const loaded = finish(loadConfig([{ file: "f", text }], { KEY: "planted-secret" }));
    assert.ok(!loaded.ok);
    const lines = loaded.problems.map((problem) => problem.toLine()).join("\n");
    assert.match(lines, /\$\{KEY\}/);
    assert.doesNotMatch(lines, /planted-secret/);
  }
});

const PLANTED = "Zq9s3cr3tW";
const quoting: [name: string, policies: string, said: RegExp][] = [
  ["a rule", "authorization: { rules: ['${A}'] }", /unknown attribute "\$\{A\}"/],
  ["a part of a rule", "authorization: { rules: ['jwt.sub == ${A}.x'] }", /unknown attribute "\$\{A\}"/],
  ["a duration", "timeout: { requestTimeout: '${A}' }", /duration/],
  ["a member", "authorization: { rules: ['jwtt.sub == \"${A}\"'] }", /unknown attribute "jwtt"/],
];
for (const [name, policies, said] of quoting) {
  test(`the value of a variable that stands for ${name} is not quoted in a message`, () => {
    const text = `gateways: { a: { port: 3000 } }\nroutes: [{ backends: [{ host: "h:1" }], policies: { ${policies} } }]\n`;
    const loaded = finish(loadConfig([{ file: "c.yaml", text }], { A: PLANTED }));
    const lines = loaded.ok ? [] : loaded.problems.map((problem) => problem.toLine());
    assert.match(lines.join("\n"), said);
    assert.equal(`${lines.join("\n")}${JSON.stringify(loaded)}`.includes(PLANTED), false, lines.join("\n"));
  });
}

test("what an expression from a variable has wrong is told, without what the variable holds", () => {
  const text = `gateways: { a: { port: 3000 } }\nroutes: [{ backends: [{ host: "h:1" }], policies: { authorization: { rules: ['\${A}'] } } }]\n`;
  const loaded = finish(loadConfig([{ file: "c.yaml", text }], { A: `${PLANTED}.x == "b"` }));
  assert.match(loaded.ok ? "" : (loaded.problems[0]?.message ?? ""), /unknown attribute \(a part of \$\{A\}\)/);
});

test("the items of a list are documents, each with its own position", () => {
  const policy = (name: string): string => `  - { kind: GatewayPolicy, metadata: { name: ${name} } }\n`;
  const text = `apiVersion: v1\nkind: List\nitems:\n${policy("a")}${policy("b")}  - kind: GatewayPolicyList\n    items:\n    ${policy("c")}  - 5\n`;
  const loaded = finish(loadConfig([{ file: "list.yaml", text }], {}));
  assert.ok(loaded.ok);
  assert.deepEqual(
    loaded.resources.map(({ value, position }) => [
      (value as { metadata?: { name: string } }).metadata?.name,
      position(["kind"])?.line,
    ]),
    [
      ["a", 4],
      ["b", 5],
      ["c", 8],
      [undefined, 9],
    ],
  );
});

test("a BackendTLSPolicy in a file stops the start, because without it requests would be in plain text", () => {
  const policy = (apiVersion: string): string => `apiVersion: ${apiVersion}\nkind: BackendTLSPolicy\n`;
  const load = (apiVersion: string) => finish(loadConfig([{ file: "tls.yaml", text: policy(apiVersion) }], {}));
  const loaded = load("gateway.networking.k8s.io/v1");
  assert.deepEqual(loaded.ok ? [] : loaded.problems.map((problem) => problem.toLine()), [
    "tls.yaml:2:7: kind: BackendTLSPolicy is not supported in files: set `backendTLS` in the policies of the backend instead",
  ]);
  assert.equal(load("example.com/v1").ok, true, "of another project");
});

test("hostile files are rejected with few problems and without an exception", () => {
  const unknown = Array.from({ length: 15_000 }, (_, i) => `key${i}: 1\n`).join("");
  for (const [text, problems] of [
    [unknown, 100],
    ["\n".repeat(2_000_000), 1],
    ["---\n".repeat(200_000), 1],
  ] as const) {
    const loaded = finish(loadConfig([{ file: "f", text }], {}));
    assert.equal(loaded.ok ? 0 : loaded.problems.length, problems);
  }
});

const unknownKeys = Array.from({ length: 7_000 }, (_, i) => `unknownKey${i}: ${i}\n`).join("");
const large: [name: string, text: string, minSteps: number][] = [
  ["150 KB of unknown keys", unknownKeys, 100],
  ["many blank lines", "\n".repeat(100_000), 300],
  ["many documents", "---\na: 1\n".repeat(5_000), 10_000],
];
for (const [name, text, minSteps] of large) {
  test(`${name} are read in many steps`, () => {
    const steps = loadConfig([{ file: "f", text }], {});
    let count = 0;
    while (steps.next().done !== true) count += 1;
    assert.ok(count >= minSteps, `${count} steps`);
  });
}

test("a Service cannot be the host that a client names, because its gateway may be no forward proxy", () => {
  const loaded = finish(loadConfig([{ file: "f", text: "services: { any: { dynamic: {} } }\n" }], {}));
  assert.deepEqual(
    (loaded.ok ? [] : loaded.problems).map(({ path, message }) => [path, message]),
    [["services.any.dynamic", "a Service cannot be `dynamic`: write a route of a gateway with `forwardProxy` instead"]],
  );
});
