import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { finish } from "../../base/sliced-work.ts";
import { yamlText } from "../../base/yaml-text.ts";
import { loadConfig } from "../load/load.ts";
import { newConversion, type Values } from "./conversion.ts";
import { type Check, dropInvalid, pathParts } from "./drop-invalid.ts";

const check: Check = (config, environment) => {
  const loaded = finish(loadConfig([{ file: "t", text: yamlText(config) }], environment));
  return loaded.ok ? [] : loaded.problems;
};

const valid = (): Values => ({
  gateways: { default: { port: 0, policies: { cors: { allowOrigins: ["*"] } } } },
  routes: [
    {
      name: "web",
      matches: [{ path: { pathPrefix: "/" } }],
      policies: { apiKey: { keys: [{ key: "k" }] }, timeout: { requestTimeout: "1s" } },
      backends: [
        { host: "localhost:1" },
        { mcp: { targets: [{ name: "a", mcp: { url: "http://localhost:1/mcp" } }] } },
      ],
    },
  ],
});

const places = ["", "gateways.default", "gateways.default.policies", "routes[0]", "routes[0].policies"].concat(
  ["routes[0].policies.timeout", "routes[0].policies.apiKey", "routes[0].matches[0]", "routes[0].backends[1].mcp"],
  ["routes[0].backends[1].mcp.targets[0]", "routes[0].backends[1].mcp.targets[0].mcp"],
);

function at(config: Values, path: string): Values {
  return pathParts(path).reduce<Values>((value, part) => value[part] as Values, config);
}

test("the result is valid for any invalid field, and the field is reported", () => {
  const names = fc.constantFrom("foo", "extProc", "tcpRoutes", "requestMirror", "oidc", "Ünknown", "a-b");
  const values = fc.oneof(
    fc.constant({}),
    fc.constant([1]),
    fc.constant("x"),
    fc.constant(null),
    fc.constant({ a: { b: 1 } }),
  );
  fc.assert(
    fc.property(fc.constantFrom(...places), names, values, (place, name, value) => {
      const conversion = newConversion(valid());
      at(conversion.config, place)[name] = value;
      dropInvalid(conversion, check);
      assert.deepEqual(check(conversion.config, {}), []);
      assert.ok(
        conversion.leftOut.some((line) => line.includes(name)),
        JSON.stringify([place, name, conversion.leftOut]),
      );
    }),
    { numRuns: 60 },
  );
});

const protections = ["oidc", "networkAuthorization"];
for (const scope of ["gateways.default", "routes[0]"])
  for (const name of protections)
    test(`${scope}: ${name} without a counterpart closes it`, () => {
      const conversion = newConversion(valid());
      (at(conversion.config, scope).policies as Values)[name] = { host: "localhost:1" };
      dropInvalid(conversion, check);
      assert.deepEqual((at(conversion.config, scope).policies as Values).authorization, { rules: [{ deny: "true" }] });
      assert.equal(conversion.closed.length, 1);
    });

test("a protecting policy that loses a field closes its route", () => {
  const conversion = newConversion(valid());
  const { policies } = at(conversion.config, "routes[0]");
  (policies as Values).apiKey = { keys: [{ key: "k" }], allowedModels: ["a"] };
  dropInvalid(conversion, check);
  assert.deepEqual(conversion.closed, ["routes[0] (web): its apiKey was not imported"]);
});

test("a variable may be a number, a URL or a string, and never causes a field to be dropped", () => {
  const conversion = newConversion(valid());
  at(conversion.config, "gateways.default").port = "${PORT}";
  at(conversion.config, "routes[0].backends[1].mcp.targets[0].mcp").url = "${TOOLS_URL}";
  dropInvalid(conversion, check);
  assert.deepEqual(conversion.leftOut, []);
});

test("an object that requires a dropped field is dropped with it, in one line", () => {
  const conversion = newConversion(valid());
  at(conversion.config, "routes[0].backends[1].mcp.targets[0].mcp").url = "nonsense";
  dropInvalid(conversion, check);
  assert.equal(conversion.leftOut.length, 1);
  assert.match(conversion.leftOut[0] ?? "", /^routes\[0\]\.backends\[1\]/);
});

test("a route that lost a condition is closed, and such a virtual model is omitted", () => {
  const conversion = newConversion({
    ...valid(),
    llm: {
      models: [{ name: "a", provider: "openAI", params: { model: "a", apiKey: "k" } }],
      virtualModels: [
        {
          name: "chosen",
          routing: { conditional: { targets: [{ when: "nothing.known", model: "a" }, { model: "a" }] } },
        },
      ],
    },
  });
  at(conversion.config, "routes[0].matches[0]").headers = [{ name: "x", weather: "sunny" }];
  dropInvalid(conversion, check);
  assert.deepEqual(check(conversion.config, {}), []);
  assert.deepEqual(at(conversion.config, "routes[0].policies").authorization, { rules: [{ deny: "true" }] });
  assert.match(conversion.closed.join(), /routes\[0\] \(web\): its condition \(matches\) was not imported/);
  assert.doesNotMatch(JSON.stringify(conversion.config.llm), /chosen/);
  assert.match(conversion.leftOut.join(), /virtualModels\[0\] \(chosen\): routing/);
});

test("a gateway that forwards connections is removed with its routes, because it has no policies to close it", () => {
  const conversion = newConversion({
    gateways: { db: { port: 0, protocol: "TLS", tls: { cert: "c.pem", key: "k.pem", spiffe: {} } } },
    tcpRoutes: [{ name: "db", gateways: "db", backends: [{ host: "localhost:1" }] }],
  });
  dropInvalid(conversion, check);
  assert.deepEqual(conversion.config, { gateways: {}, tcpRoutes: [] });
  assert.match(conversion.leftOut.join("\n"), /gateways\.db: without its tls, it would accept any client/);
});
