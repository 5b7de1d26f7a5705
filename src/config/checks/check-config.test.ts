import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { loadConfig } from "../load/load.ts";
import { checkConfig } from "./check-config.ts";

const LOOPBACK = "gateways: { default: { port: 0, address: 127.0.0.1 } }\n";
const MCP = "mcp: { targets: [{ name: files, stdio: { cmd: cat } }] }";
const AI = "ai: { name: m, provider: { demo: {} } }";
const HOST = 'host: "h:80"';
const KEYS = "apiKey: { keys: [{ key: k, metadata: { user_id: u } }] }";
const JWT = 'jwtAuth: { issuer: "http://i", audiences: [a], jwks: { inline: { keys: [] } } }';

function checked(yaml: string) {
  const loaded = finish(loadConfig([{ file: "f", text: yaml }], {}));
  assert.ok(loaded.ok, loaded.ok ? "" : loaded.problems.map((problem) => problem.toLine()).join("\n"));
  return checkConfig(loaded.config);
}

function warningsOf(yaml: string): string[] {
  return checked(yaml).warnings.map(({ path, message }) => `${path}: ${message}`);
}

const route = (backend: string, policies: string): string =>
  `${LOOPBACK}routes: [{ backends: [{ ${backend} }], policies: { ${policies} } }]\n`;
const rule = (source: string): string => `authorization: { rules: ['${source}'] }`;
const limit = (source: string, what = "requests"): string =>
  `rateLimit: { local: [{ ${what}: 5, unit: Minutes, key: '${source}' }] }`;
const header = (source: string, when = "request"): string =>
  `transformations: { ${when}: { set: { x-a: '${source}' } } }`;

const never = /never set here, and reading it always fails/;

/** Attribute × place × surroundings: whether it can be there. */
const surroundings: [attribute: string, backend: string, auth: string, absent: readonly string[]][] = [
  ["response.code == 200", HOST, "", ["access", "requestLimit", "tokenLimit", "request"]],
  ['llm.responseModel == "a"', AI, "", ["access", "tokenLimit", "request"]],
  ["llm.totalTokens > 5", AI, "", ["access", "tokenLimit", "request"]],
  ["llm.cost > 5.0", AI, "", ["access", "tokenLimit", "request"]],
  ['llm.requestModel == "a"', AI, "", []],
  ['llm.requestModel == "a"', MCP, "", ["access", "tokenLimit", "request", "response"]],
  ['llm.requestModel == "a"', HOST, "", ["request", "response"]],
  ['mcp.tool.name == "a"', MCP, "", []],
  ['mcp.tool.name == "a"', AI, "", ["access", "requestLimit", "tokenLimit", "request", "response"]],
  ['jwt.sub == "a"', HOST, "", ["access", "requestLimit", "tokenLimit", "request", "response"]],
  ['jwt.sub == "a"', HOST, JWT, []],
  ['jwt.sub == "a"', HOST, KEYS, ["access", "requestLimit", "tokenLimit", "request", "response"]],
  ['apiKey.user_id == "a"', HOST, "", ["access", "requestLimit", "tokenLimit", "request", "response"]],
  ['apiKey.user_id == "a"', HOST, KEYS, []],
  ['basicAuth.username == "a"', HOST, KEYS, ["access", "requestLimit", "tokenLimit", "request", "response"]],
  ['request.headers["x"] == "a"', HOST, "", []],
  ['has(jwt.sub) && jwt.sub == "a"', HOST, "", []],
  [
    '!has(jwt.sub) || jwt.groups.exists(g, g == "a")',
    HOST,
    "",
    ["access", "requestLimit", "tokenLimit", "request", "response"],
  ],
];
const places: Record<string, (source: string) => string> = {
  access: rule,
  requestLimit: (source) => limit(source),
  tokenLimit: (source) => limit(source, "tokens"),
  request: (source) => header(source),
  response: (source) => header(source, "response"),
};
for (const [attribute, backend, auth, absent] of surroundings) {
  for (const [moment, policy] of Object.entries(places)) {
    const isAbsent = absent.includes(moment);
    test(`${attribute} with ${backend.slice(0, 4)} ${auth.slice(0, 7)}: ${isAbsent ? "never there" : "nothing is said"} at ${moment}`, () => {
      const said = warningsOf(route(backend, [auth, policy(attribute)].filter((one) => one !== "").join(", ")));
      assert.equal(
        said.some((line) => never.test(line)),
        isAbsent,
        said.join("\n"),
      );
    });
  }
}

for (const [fields, said] of [
  ["", "has no backend"],
  ["backends: []", "has no backend"],
  ['policies: { directResponse: { conditional: [{ condition: "true" }] } }', "has no backend"],
  ['policies: { directResponse: { conditional: [{ condition: "true" }, { status: 404 }] } }', undefined],
  [`backends: [{ ${HOST}, weight: 0 }]`, "has only backends with weight 0"],
  [`backends: [{ ${HOST} }]`, undefined],
  ["policies: { directResponse: { status: 200 } }", undefined],
  ["policies: { requestRedirect: { scheme: https } }", undefined],
] as const) {
  test(`a route with { ${fields} }: ${said ?? "no warning"}`, () => {
    const warnings = warningsOf(`${LOOPBACK}routes: [{ name: r, ${fields} }]\n`).filter((line) => line.includes("500"));
    assert.equal(warnings.length, said === undefined ? 0 : 1);
    if (said !== undefined)
      assert.match(warnings[0] ?? "", new RegExp(`^routes\\[0\\].*: the route ${said}.*add \`backends\``));
  });
}

test("a warning stands at the expression and says what to add", () => {
  const [warning] = checked(route(HOST, rule('"admin" in jwt.roles'))).warnings;
  assert.equal(
    warning?.toLine(),
    "f:2:79: routes[0].policies.authorization.rules[0]: `jwt.roles` is never set here, and reading it always fails: no policy here verifies a token; add `jwtAuth` or `mcpAuthentication`",
  );
});

const gatewayWith = (policies: string, routePolicies: string): string =>
  `gateways: { default: { port: 0, address: 127.0.0.1, policies: { ${policies} } } }\nroutes: [{ backends: [{ ${HOST} }], policies: { ${routePolicies} } }]\n`;

test("a gateway's rules run before the route's authentication, its limits after it", () => {
  assert.match(warningsOf(gatewayWith(rule('jwt.sub == "a"'), JWT)).join(), never);
  assert.deepEqual(warningsOf(gatewayWith(limit("jwt.sub"), JWT)), []);
  assert.deepEqual(warningsOf(gatewayWith(`${JWT}, ${rule('jwt.sub == "a"')}`, "timeout: { requestTimeout: 1s }")), []);
  assert.match(warningsOf(gatewayWith(rule('proxy.route.name == "route0"'), JWT)).join(), /before a route is chosen/);
});

const meanings: [policies: string, said: string | undefined][] = [
  [
    `mcpAuthorization: { rules: ['mcp.tool == "echo"'] }`,
    "`mcp.tool` is an object and never equals a string: did you mean `mcp.tool.name`?",
  ],
  [
    `mcpAuthorization: { rules: ['mcp.tool in ["echo"]'] }`,
    "`mcp.tool` is an object and never equals a string: did you mean `mcp.tool.name`?",
  ],
  [
    `mcpAuthorization: { rules: ['mcp.resource.startsWith("file:")'] }`,
    "`mcp.resource` is an object and never equals a string: did you mean `mcp.resource.uri`?",
  ],
  [`mcpAuthorization: { rules: ['mcp.tool["name"] == "echo"'] }`, undefined],
  [rule('request.headers == "x"'), "`request.headers` is an object and never equals a string: name one of its fields"],
  [
    rule('proxy.route == "x"'),
    "`proxy.route` is an object and never equals a string: did you mean `proxy.route.name`?",
  ],
  [rule('["mcp.tool"].exists(mcp, mcp == "a")'), undefined],
  [rule('mcp.target == "fils"'), 'there is no MCP server named "fils", did you mean "files"?'],
  [rule('"fils" != mcp.tool.target'), 'there is no MCP server named "fils", did you mean "files"?'],
  [rule('mcp.target in ["files", "other"]'), 'there is no MCP server named "other"'],
  [rule('mcp.target == "files"'), undefined],
  [rule('proxy.route.name == "rout0"'), 'there is no route named "rout0", did you mean "route0"?'],
  [rule('proxy.listener.name == "default"'), undefined],
  [rule('request.scheme == "HTTPS"'), 'there is no scheme named "HTTPS"'],
  [
    "rateLimit: { local: [{ tokens: 5, unit: Hours }] }",
    "rateLimit has no effect here: a token limit counts LLM calls, and no backend here takes any: use `requests`",
  ],
  ["rateLimit: { local: [{ requests: 5, unit: Hours }] }", undefined],
  [
    "ai: { defaults: { temperature: 0 } }",
    "ai has no effect here: this policy is for LLM calls, and no LLM backend is reached from here",
  ],
];
for (const [policies, said] of meanings) {
  test(`${policies}: ${said ?? "nothing is said"}`, () => {
    const messages = checked(route(MCP, policies)).warnings.map(({ message }) => message);
    if (said === undefined) assert.deepEqual(messages, []);
    else
      assert.ok(
        messages.some((message) => message.startsWith(said)),
        messages.join("\n"),
      );
  });
}

test("a policy that signs requests has no effect on MCP servers", () => {
  const aws = "backendAuth: { aws: { region: us-east-1, service: a } }";
  assert.deepEqual(warningsOf(route(HOST, aws)), []);
  assert.deepEqual(warningsOf(route(MCP, `${KEYS}, ${aws}`)), [
    "routes[0].policies.backendAuth.aws: backendAuth has no effect here: it signs requests to HTTP backends: set `aws` of the MCP server, or `auth` of the OpenAPI target or LLM provider",
  ]);
});

test("rules for tools on a route without MCP servers have no effect", () => {
  assert.match(
    warningsOf(route(HOST, `mcpAuthorization: { rules: ['request.method == "GET"'] }`)).join(),
    /mcpAuthorization has no effect here/,
  );
});

const commands: [cmd: string, said: RegExp | undefined][] = [
  ["npx -y x", /`cmd` is one program .*: write `cmd: npx` and put the arguments in `args`/],
  ["KEY=hunter2 npx", /write the program alone/],
  ["cat", undefined],
  ["/usr/local/my server", /write `cmd: \/usr\/local\/my`/],
];
for (const [cmd, said] of commands) {
  test(`cmd: ${cmd} is ${said ? "told to have arguments inside" : "a program"}`, () => {
    const said_ = warningsOf(
      `mcp: { port: 0, address: 127.0.0.1, targets: [{ name: a, stdio: { cmd: "${cmd}" } }] }\n`,
    );
    if (said === undefined) assert.deepEqual(said_, []);
    else assert.match(said_.join("\n"), said);
    assert.doesNotMatch(said_.join("\n"), /hunter2/);
  });
}

const listeners: [name: string, address: string, policies: string, backend: string, isOpen: boolean][] = [
  ["no address", "", "", MCP, true],
  ["an address of the network", ", address: 10.0.0.1", "", AI, true],
  ["every IPv6 address", ', address: "::"', "", MCP, true],
  ["loopback", ", address: 127.0.0.1", "", MCP, false],
  ["IPv6 loopback", ', address: "::1"', "", MCP, false],
  ["an API key", "", `policies: { ${KEYS} }`, MCP, false],
  ["rules about addresses", "", `policies: { ${rule('source.address == "10.0.0.1"')} }`, MCP, false],
  ["an optional token only", "", `policies: { ${JWT.replace("{", "{ mode: optional,")} }`, MCP, true],
  ["a plain proxy", "", "", HOST, false],
  ["a forward proxy", ", forwardProxy: true", "", "dynamic: {}", true],
  ["a forward proxy with keys", ", forwardProxy: true", `policies: { ${KEYS} }`, "dynamic: {}", false],
];
for (const [name, address, policies, backend, isOpen] of listeners) {
  test(`a listener with ${name} is ${isOpen ? "told to be open" : "no matter"}`, () => {
    const said = warningsOf(
      `gateways: { default: { port: 3000${address} } }\nroutes: [{ backends: [{ ${backend} }]${policies === "" ? "" : `, ${policies}`} }]\n`,
    ).filter((line) => line.includes("other machines can reach"));
    assert.equal(said.length === 1, isOpen, said.join("\n"));
    if (isOpen && !address.includes("address"))
      assert.match(
        said.join(),
        /^gateways\.default\.port: other machines can reach 0\.0\.0\.0:3000, and route "route0" asks/,
      );
  });
}

test("beside `gateways`, the ports of the sections are noted", () => {
  const section = "mcp: { address: 127.0.0.1, targets: [{ name: a, stdio: { cmd: cat } }] }\n";
  assert.deepEqual(checked(section).notes, []);
  assert.deepEqual(
    checked(`${LOOPBACK}${section}`).notes.map((note) => note.toLine()),
    [
      "f:2:6: mcp.port: listens on 127.0.0.1:3000, a port of its own; `gateway: <name>` instead of `port` puts it on one of `gateways`",
    ],
  );
});

test("warns about an authorization service over gRPC whose headers clients can forge", () => {
  const warnings = (settings: string): string[] => warningsOf(route(HOST, `extAuthz: { ${settings} }`));
  const [warning, ...more] = warnings('host: "127.0.0.1:9"');
  assert.match(warning ?? "", /extAuthz: without `accept`, a header .* stays as the client sent it/);
  assert.deepEqual(more, []);
  for (const settings of [
    'host: "127.0.0.1:9", accept: []',
    'host: "127.0.0.1:9", accept: [x-user]',
    'url: "http://127.0.0.1:9/"',
  ])
    assert.deepEqual(warnings(settings), []);
});
