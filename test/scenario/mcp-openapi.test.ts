/** `targets[].openapi`: an HTTP API with an OpenAPI description as an MCP server. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { stringify } from "yaml";
import { expectedSignature } from "../support/aws-signature.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { largeDescription, PETSTORE } from "../support/mcp/petstore.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

interface Received {
  readonly method: string;
  readonly url: string;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly body: string;
}

async function setUp(t: TestContext, openapi: object = {}, more: object[] = [], spec: Json = PETSTORE) {
  const received: Received[] = [];
  const api = await backendFor(t, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const { method = "", url = "", headers } = req;
      received.push({ method, url, headers, body: Buffer.concat(chunks).toString() });
      if (url === "/v1/openapi.json") res.writeHead(200).end(JSON.stringify(spec));
      else if (url.startsWith("/v1/image"))
        res.writeHead(200, { "content-type": "image/png" }).end(Buffer.from([137, 80]));
      else if (url.startsWith("/v1/list")) res.writeHead(200, { "content-type": "application/json" }).end("[1, 2]");
      else if (url.startsWith("/v1/teapot"))
        res.writeHead(418, { "retry-after": "3" }).end('{"error":"short and stout"}');
      else if (url.startsWith("/v1/redirect")) res.writeHead(302, { location: "http://169.254.169.254/secret" }).end();
      else if (method === "DELETE") res.writeHead(204).end();
      else
        res.writeHead(200, { "content-type": "application/json" }).end('{"id": 12345678901234567890, "name": "Rex"}');
    });
  });
  const target = {
    name: "shop",
    openapi: { file: "api.json", server: `http://${api.host}/v1`, headers: { "x-api-key": "k3y" }, ...openapi },
  };
  const gateway = await gatewayFor(t, mcpConfig([target, ...more]), {
    files: { "api.json": typeof spec === "string" ? spec : JSON.stringify(spec), "api.yaml": stringify(spec) },
  });
  const client = rawClient(`${gateway.url()}/mcp`);
  const opened = await client.initialize();
  return { api, received, gateway, client, opened };
}

async function tools(client: RawClient): Promise<Map<string, Json>> {
  const found = new Map<string, Json>();
  let cursor: string | undefined;
  do {
    const { result } = await client.request("tools/list", cursor === undefined ? {} : { cursor });
    for (const tool of result.tools) found.set(tool.name, tool);
    cursor = result.nextCursor;
  } while (cursor !== undefined);
  return found;
}

test("each operation is a tool with a schema of its own", async (t) => {
  const { client, opened, gateway } = await setUp(t);
  assert.equal(opened.message.result.serverInfo.name, "Pet store");
  assert.equal(opened.message.result.instructions, "A shop for tests.");
  const found = await tools(client);
  assert.deepEqual(
    [...found.keys()].sort(),
    ["createPet", "deletePet", "getPet", "get_pets", "image", "list", "login", "readFile", "redirect", "teapot"].sort(),
  );
  const get = found.get("getPet");
  assert.equal(get.title, "One pet");
  assert.deepEqual(get.inputSchema.required, ["petId"]);
  // Authorization belongs to the message, x-api-key to the gateway.
  assert.deepEqual(Object.keys(get.inputSchema.properties), ["petId", "fields", "ids", "filter", "x-trace", "session"]);
  assert.equal(get.inputSchema.properties.petId.description, "Which");
  assert.equal(get.annotations.readOnlyHint, true);
  assert.equal(found.get("deletePet").annotations.destructiveHint, true);
  const { inputSchema } = found.get("createPet");
  assert.deepEqual(inputSchema.properties.body, { $ref: "#/$defs/Pet" });
  const pet = inputSchema.$defs.Pet;
  assert.deepEqual(pet.properties.parent, { $ref: "#/$defs/Pet" });
  assert.deepEqual(pet.properties.nick, { type: ["string", "null"] });
  assert.deepEqual(pet.properties.age, { type: "integer", exclusiveMinimum: 0 });
  assert.deepEqual(pet.properties.example, { type: "string" });
  assert.equal(pet.properties.name.example, undefined);
  assert.deepEqual(inputSchema.$defs.Person.allOf[0].properties.pets.items, { $ref: "#/$defs/Pet" });
  assert.match(await gateway.logged("OpenAPI operation left out"), /GET \/broken\/\{id\}/);
  assert.ok(gateway.log().some((line) => /leads out of the file/.test(line)));
});

test("arguments go to path, query, header, cookie and body", async (t) => {
  const { client, received } = await setUp(t, { auth: { bearer: "s3cret" } });
  const { result } = await client.call("getPet", {
    petId: "a:b c?",
    fields: ["x", "y&z"],
    ids: [1, 2],
    filter: { color: "red" },
    "x-trace": "t1",
    session: "s-1",
  });
  const request = received.pop();
  assert.equal(request?.url, "/v1/pets/a%3Ab%20c%3F?fields=x&fields=y%26z&ids=1,2&filter%5Bcolor%5D=red");
  assert.equal(request?.headers["x-trace"], "t1");
  assert.equal(request?.headers.cookie, "session=s-1");
  assert.equal(request?.headers.authorization, "Bearer s3cret");
  assert.equal(request?.headers["x-api-key"], "k3y");
  assert.equal(result.content[0].text, '{"id": 12345678901234567890, "name": "Rex"}');
  assert.equal(result.structuredContent.name, "Rex");
  await client.post(
    '{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"createPet","arguments":{"body":{"name":"Rex","n":12345678901234567890}}}}',
  );
  assert.deepEqual(
    [received.at(-1)?.method, received.at(-1)?.url, received.at(-1)?.body, received.at(-1)?.headers["content-type"]],
    ["POST", "/v1/pets", '{"name":"Rex","n":12345678901234567890}', "application/json"],
  );
  await client.call("login", { body: { user: "a b", pass: "x&y" } });
  assert.equal(received.at(-1)?.body, "user=a%20b&pass=x%26y");
});

test("results are structured; errors are results that say so; redirects are not followed", async (t) => {
  const { client, received, gateway } = await setUp(t);
  assert.deepEqual((await client.call("list")).result.structuredContent, { result: [1, 2] });
  assert.deepEqual((await client.call("image")).result.content, [
    { type: "image", data: "iVA=", mimeType: "image/png" },
  ]);
  const teapot = (await client.call("teapot")).result;
  assert.equal(teapot.isError, true);
  assert.match(teapot.content[0].text, /status 418 \(retry after 3\): \{"error":"short and stout"\}/);
  const redirect = (await client.call("redirect")).result;
  assert.match(redirect.content[0].text, /redirect \(302\), which is not followed/);
  assert.match((await client.call("deletePet", { petId: "1" })).result.content[0].text, /status 204 and no content/);
  assert.match(
    (await client.call("getPet", {})).result.content[0].text,
    /Invalid arguments: the argument "petId" is required/,
  );
  assert.match((await client.call("list", { x: 1 })).result.content[0].text, /unknown argument "x"/);
  assert.match((await client.call("nope")).error.message, /Unknown tool: nope/);
  assert.equal(received.length, 5);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /tool="teapot",outcome="tool_error"\} 1/);
});

/** Each is, to some server, more or fewer segments than one. */
const NO_SEGMENTS = [
  "..", ".", "", "\ud800", "../admin", "../../admin", "a/../../x", "a/b", "/", "//evil.example/x", "..\\admin", "a\\b", "%2e%2e", "%2e%2e%2fadmin",
  "..%2Fadmin", "..%5cadmin", "%252e%252e%252fadmin", "%25252e%25252e", "a%2Fb", "..;/admin", "..;x", ";x", ".. ", "...", "a\0", "a%00", "a\nb",
  "a%0d%0ahost: evil", "%c0%ae%c0%ae%c0%afadmin", "?x", "#x",
]; // biome-ignore format: a table

test("no argument leads to another path, host or header [L17]", async (t) => {
  const { client, received } = await setUp(t, { auth: { query: { name: "key", value: "s3cret" } } });
  for (const petId of NO_SEGMENTS)
    assert.equal((await client.call("getPet", { petId })).result?.isError ?? true, true, JSON.stringify(petId));
  assert.equal((await client.call("getPet", { petId: "1", "x-trace": "a\r\nhost: evil" })).result.isError, true);
  for (const name of ["..", "%2e", "x/../..", "/"])
    assert.equal((await client.call("readFile", { name })).result.isError, true, name);
  assert.equal(received.length, 0);
  for (const petId of ["a b", "50%", "a;b", "x:y@z", "café"]) await client.call("getPet", { petId });
  assert.deepEqual(
    received.map(({ url }) => url),
    ["a%20b", "50%25", "a%3Bb", "x%3Ay%40z", "caf%C3%A9"].map((segment) => `/v1/pets/${segment}?key=s3cret`),
  );
});

test("include, exclude, prefixes, the 2026 era and a description that is fetched", async (t) => {
  const { gateway, client } = await setUp(
    t,
    { file: "api.yaml", include: ["tag:pets", "GET /list"], exclude: ["delete*", "GET /pets"] },
    [oddTarget()],
  );
  const found = [...(await tools(client)).keys()].filter((name) => name.startsWith("shop_"));
  assert.deepEqual(found, ["shop_getPet", "shop_createPet", "shop_list"]);
  const modern = await modernPost(`${gateway.url()}/mcp`, "tools/call", { name: "shop_list", arguments: {} });
  assert.deepEqual(modern.message.result.structuredContent, { result: [1, 2] });

  const fetched = await setUp(t);
  const target = {
    name: "shop",
    openapi: { url: `http://${fetched.api.host}/v1/openapi.json`, server: `http://${fetched.api.host}/v1` },
  };
  assert.equal(await fetched.gateway.reload(mcpConfig([target])), "loaded");
  assert.ok((await tools(fetched.client)).has("getPet"));
});

test("2 MB with 800 operations: every one is a tool, page by page", async (t) => {
  const spec = largeDescription(1_200_000);
  assert.ok(JSON.stringify(spec).length >= 2_000_000);
  const { client } = await setUp(t, {}, [], spec);
  assert.equal((await tools(client)).size, 800);
});

for (const [what, spec, openapi, problem] of [
  ["Swagger 2.0", { swagger: "2.0", paths: {} }, {}, /convert the description to OpenAPI 3/],
  ["YAML that is too large", `openapi: 3.1.0\npaths: {}\n# ${"x".repeat(1_100_000)}`, {}, /Convert it to JSON/],
  ["no OpenAPI", { hello: 1 }, {}, /not an OpenAPI 3 description/],
  ["a description without a server", { openapi: "3.1.0", paths: {} }, { server: undefined }, /Set `server`/],
  [
    "a URL without a server",
    PETSTORE,
    { file: undefined, url: "http://x.example/a.json", server: undefined },
    /server/,
  ],
  ["a file that is not there", PETSTORE, { file: "none.json" }, /none\.json/],
] as const)
  test(`${what} stops the load`, async (t) => {
    await assert.rejects(setUp(t, openapi, [], spec), problem);
  });

test("every request to an API at AWS is signed as it is sent", async (t) => {
  const secretAccessKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
  const aws = { region: "us-east-1", service: "execute-api", accessKeyId: "AKIDEXAMPLE", secretAccessKey };
  const { client, received } = await setUp(t, { auth: { aws } });
  assert.equal((await client.call("getPet", { petId: "é 1" })).result.isError, undefined);
  assert.equal((await client.call("createPet", { body: { name: "Rex" } })).result.isError, undefined);
  assert.equal(received.length, 2);
  for (const request of received) {
    const sent = /Signature=(\w+)/.exec(String(request.headers.authorization))?.[1];
    const expected = expectedSignature(
      request as Parameters<typeof expectedSignature>[0],
      secretAccessKey,
      "execute-api",
    );
    assert.equal(sent, expected, request.url);
    assert.equal(request.headers["x-api-key"], "k3y");
  }
});

test("a signed API without keys, or with another source of the signature's headers, cannot be called", async (t) => {
  const aws = { region: "us-east-1", service: "execute-api", profile: "missing" };
  const { client, received } = await setUp(t, { auth: { aws } });
  const { error } = await client.call("getPet", { petId: "1" });
  assert.match(error.message, /could not be called/);
  assert.equal(received.length, 0);
  await assert.rejects(setUp(t, { auth: { aws }, forwardHeaders: ["authorization"] }), /the signature sets the header/);
});

const ORDERS = {
  openapi: "3.1.0",
  info: {},
  paths: {
    "/orders/{id}": {
      get: {
        operationId: "orders",
        parameters: [
          { name: "id", in: "path", required: true, schema: { type: "string" } },
          { name: "user", in: "query", schema: { type: "string" } },
          { name: "q", in: "query", schema: { type: "string" } },
          { name: "limit", in: "query", schema: { type: "integer" } },
          { name: "X-User", in: "header", schema: { type: "string" } },
        ],
        responses: {},
      },
    },
  },
};

test("no argument gets past a pinned argument, a rule, or a forwarded header", async (t) => {
  const received: Received[] = [];
  const api = await backendFor(t, ({ method = "", url = "", headers }, res) => {
    received.push({ method, url, headers, body: "" });
    res.end("{}");
  });
  const openapi = {
    file: "api.json",
    server: `http://${api.host}`,
    auth: { query: { name: "api_key", value: "own" } },
    forwardHeaders: ["x-user"],
  };
  const override = { orders: { arguments: { user: { value: "alice" } } } };
  const rules = [
    { deny: "has(mcp.tool.arguments) && default(mcp.tool.arguments.limit, 0) > 10" },
    { deny: 'has(mcp.tool.arguments) && mcp.tool.arguments.id == "secret"' },
  ];
  const policies = { mcpAuthorization: { rules } };
  const yaml = mcpConfig([{ name: "api", openapi, tools: { override } }], {}, { policies });
  const gateway = await gatewayFor(t, yaml, { files: { "api.json": JSON.stringify(ORDERS) } });
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  for (const args of [
    { id: "secret" }, { id: ["secret"] }, { id: "1", limit: 100 }, { id: "1", limit: "100" }, { id: "1", limit: [100] }, { id: "1", q: { user: "bob" } },
    { id: "1", q: { user: "bob", api_key: "x" } }, { id: "1", q: { limit: "100000" } }, { id: "1", "X-User": "admin" },
  ]) // biome-ignore format: a table
    await client.call("orders", args);
  assert.equal(received.length, 0);
  await client.call("orders", { id: "1", q: "user=bob&user=x", limit: 5 });
  assert.deepEqual(
    received.map(({ url }) => url),
    ["/orders/1?user=alice&q=user%3Dbob%26user%3Dx&limit=5&api_key=own"],
  );
  assert.equal(received[0]?.headers["x-user"], undefined);
});
