import assert from "node:assert/strict";
import { test } from "node:test";
import { createExchange } from "../../../test/support/identity/policy-env.ts";
import { HeaderList } from "../../http/headers.ts";
import { BrowserCookie, foreignOrigin } from "./browser-flow.ts";

const ORIGIN = "https://gateway.example";
/** Headers that a page of another origin, an old browser or a script may send. */
const ORIGINS = [
  undefined,
  "",
  "null",
  "https://evil.example",
  "http://gateway.example",
  "https://gateway.example:8443",
  "https://sub.gateway.example",
  "https://gateway.example.evil.example",
  "https://gateway.example/",
  "https://user@gateway.example",
  "HTTPS://GATEWAY.EXAMPLE",
  `${ORIGIN}, https://evil.example`,
] as const;
const SITES = [undefined, "none", "same-origin", "same-site", "cross-site", "anything"] as const;

function headersOf(origin: string | undefined, site: string | undefined): Record<string, string> {
  return { ...(origin === undefined ? {} : { origin }), ...(site === undefined ? {} : { "sec-fetch-site": site }) };
}

test("only a page of the same origin passes: every Origin with every Sec-Fetch-Site [D30]", () => {
  for (const origin of [ORIGIN, ...ORIGINS])
    for (const site of SITES) {
      const { request } = createExchange({ headers: headersOf(origin, site) });
      const isOwn = origin === ORIGIN && (site === undefined || site === "none" || site === "same-origin");
      assert.equal(foreignOrigin(request, ORIGIN) === undefined, isOwn, `${origin} ${site}`);
    }
});

test("a second Origin header is not ignored", () => {
  const { request } = createExchange({
    headers: [
      ["origin", ORIGIN],
      ["origin", "https://evil.example"],
    ],
  });
  assert.match(foreignOrigin(request, ORIGIN) ?? "", /expected https:\/\/gateway\.example/);
});

for (const [url, name, flags] of [
  ["https://gateway.example/callback", "__Host-gateway_x", ["Path=/", "HttpOnly", "SameSite=Lax", "Secure"]],
  ["http://gateway.example:3000/callback", "gateway_x", ["Path=/", "HttpOnly", "SameSite=Lax"]],
] as const)
  test(`the cookie of ${url} belongs to this host only [D31]`, () => {
    const cookie = new BrowserCookie("x", url);
    const [pair, ...attributes] = cookie.line("value", 60).split("; ");
    assert.equal(pair, `${name}=value`);
    assert.deepEqual(attributes.sort(), [...flags, "Max-Age=60"].sort());
    assert.match(cookie.clearing(), new RegExp(`^${name}=; .*Max-Age=0`));
    // The cookie of the other scheme has another name.
    const headers = HeaderList.of({ cookie: `__Host-gateway_x=a; gateway_x=b; xgateway_x=c; gateway_xy=d; ${name}=e` });
    assert.deepEqual(cookie.read(headers), name === "gateway_x" ? ["b", "e"] : ["a", "e"]);
  });

test("reads at most eight cookies of one name", () => {
  const headers = HeaderList.of({ cookie: "gateway_x=1; ".repeat(500) });
  assert.equal(new BrowserCookie("x", "http://h/").read(headers).length, 8);
});
