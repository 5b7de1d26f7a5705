import assert from "node:assert/strict";
import { test } from "node:test";
import { peerInput } from "../../base/peer-inputs.ts";
import type { FetchRequest } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import { requestRegistration, requestRevocation, requestToken } from "./oauth-requests.ts";

const URL = "https://idp.example/token?tenant=a%2Fb";
const secret = "s-_ ü";

function server(status: number, body = "{}", headers: Readonly<Record<string, string>> = {}) {
  const requests: FetchRequest[] = [];
  const endpoint = {
    url: URL,
    timeoutMs: 5_000,
    input: peerInput("identity-provider/token-response"),
    fetch: async (request: FetchRequest) => {
      requests.push(request);
      return { status, headers: HeaderList.of(headers), body: Buffer.from(body) };
    },
  };
  return { endpoint, requests };
}

const FORM = [
  ["grant_type", "urn:example:grant"],
  ["resource", "https://a"],
  ["resource", "https://b"],
] as const;
const PLAIN = "grant_type=urn%3Aexample%3Agrant&resource=https%3A%2F%2Fa&resource=https%3A%2F%2Fb";
const BASIC = `Basic ${Buffer.from("a-b:s-_%20%C3%BC").toString("base64")}`;
const ASSERTION =
  "&client_id=a-b&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";

for (const [what, client, body, authorization] of [
  ["no client", {}, PLAIN, undefined],
  ["a public client", { clientId: "a-b" }, `${PLAIN}&client_id=a-b`, undefined],
  ["a secret in the header", { clientId: "a-b", clientSecret: secret }, PLAIN, BASIC],
  [
    "a secret in the body",
    { clientId: "a-b", clientSecret: secret, method: "post" },
    `${PLAIN}&client_id=a-b&client_secret=s-_+%C3%BC`,
    undefined,
  ],
  [
    "a signed assertion",
    { clientId: "a-b", assertion: async (id: string, audience: string) => `${id} for ${audience}` },
    `${PLAIN}${ASSERTION}&client_assertion=a-b+for+https%3A%2F%2Fidp.example%2Ftoken%3Ftenant%3Da%252Fb`,
    undefined,
  ],
] as const)
  for (const status of [200, 301, 302, 303, 307, 308, 401, 500])
    test(`a token request with ${what} is sent once, to its endpoint only, and ${status} is returned`, async () => {
      const { endpoint, requests } = server(status, '{"a":1}', {
        location: "https://evil.example/token",
        "www-authenticate": "Basic",
      });
      const answer = await requestToken(endpoint, client, FORM);
      assert.deepEqual(answer, { status, text: '{"a":1}', members: { a: 1 } });
      assert.deepEqual(
        requests.map(({ body: sent, ...request }) => ({ ...request, body: sent?.toString() })),
        [
          {
            url: URL,
            method: "POST",
            headers: {
              accept: "application/json",
              "content-type": "application/x-www-form-urlencoded",
              ...(authorization === undefined ? {} : { authorization }),
            },
            body,
            timeoutMs: 5_000,
            input: peerInput("identity-provider/token-response"),
          },
        ],
      );
      await requestRevocation(endpoint, client, "t");
      await requestRegistration(endpoint, { client_name: "gateway", redirect_uris: ["https://gw"] });
      assert.deepEqual(
        requests.map(({ url }) => url),
        [URL, URL, URL],
      );
      assert.match(requests[1]?.body?.toString() ?? "", /^token=t(?:&client_|$)/);
      assert.equal(requests[2]?.body?.toString(), '{"client_name":"gateway","redirect_uris":["https://gw"]}');
      assert.equal(requests[2]?.headers?.["content-type"], "application/json");
      assert.equal(requests[2]?.headers?.authorization, undefined);
    });

test("a body that is not a JSON object, and a failed request, are left to the flow", async () => {
  for (const text of ["<html>", "[]", "null", ""])
    assert.deepEqual((await requestToken(server(200, text).endpoint, {}, FORM)).members, {});
  const failing = { ...server(200).endpoint, fetch: () => Promise.reject(new Error("unreachable")) };
  await assert.rejects(requestToken(failing, {}, FORM), /^Error: unreachable$/);
});
