/**
 * Forms and registrations on their way to an identity provider: names and values as the platform decodes them, bytes that
 * are not changed stay, no parameter stands twice, and no redirect URI leads to a script or an open host.
 */

import { parseRegistration } from "../../../src/identity/login/login-endpoints.ts";
import { parseForm, requireUnique, serializeForm } from "../../../src/identity/providers/oauth-form.ts";
import { OAuthRequestError } from "../../../src/identity/providers/provider.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

type Input = { readonly form: string; readonly body: Buffer };

/** Decoded by the platform, as one whole; a question mark at the front is no part of a form's meaning there. */
function reference(form: string): string[][] {
  return [...new URLSearchParams(`&${form}`)].map(([name, value]) => [name, value]);
}

function formOutcome(form: string): string {
  const pairs = parseForm(form);
  expectSame(
    pairs.map(({ name, value }) => [name, value]),
    reference(form),
    "the pairs",
  );
  expectSame(serializeForm(pairs), form.split("&").filter(Boolean).join("&"), "written again");
  const names = pairs.map(({ name }) => name.toLowerCase());
  const refusal = refusalOf(() => requireUnique(pairs), OAuthRequestError);
  expectSame(refusal === undefined, new Set(names).size === names.length, "whether names are unique");
  return `${pairs.length} ${refusal === undefined}`;
}

function registrationOutcome(body: Buffer): string {
  let uris: unknown;
  const refusal = refusalOf(() => {
    uris = parseRegistration(body).redirect_uris;
  }, OAuthRequestError);
  if (refusal !== undefined) return refusal.message;
  for (const uri of (uris ?? []) as string[]) {
    const { protocol, hostname, username, password } = new URL(uri);
    expect(!/^(?:javascript|data|file|vbscript|blob|about|ftp|wss?):$/.test(protocol), `the scheme ${protocol}`);
    expect(username === "" && password === "", "credentials in a redirect URI");
    if (protocol === "http:")
      expect(/^127\.|^\[::1\]$|^(?:.+\.)?localhost\.?$/.test(hostname), `http on the host ${hostname}`);
    expect(!uri.includes("#"), "a fragment");
  }
  return `registered ${Array.isArray(uris) ? uris.length : "none"}`;
}

const PIECES = [
  "a",
  "code",
  "Code",
  "resource",
  "=",
  "=",
  "&",
  "&",
  "%61",
  "%",
  "%zz",
  "+",
  " ",
  "?",
  "#",
  "%26",
  "%3D",
  "é",
  "%C3%A9",
  "%ff",
  ";",
  "state",
];
const URIS = [
  "https://a.example/cb", "http://127.0.0.1:1/cb", "http://localhost/cb", "http://a.example/", "javascript:alert(1)", "JavaScript:x", "data:,x",
  "app://x", "http://[::1]/", "http://localhost.evil.example/", "http://127.0.0.1.evil.example/", "https://u:p@a/", "file:///etc", "https://a/#x",
  "http:127.1/", "//a", "http://0x7f.1/", "\tjavascript:x", "java\nscript:x", "http://127.0.0.1@evil.example/", "https://a/*", "http://LOCALHOST./",
]; // biome-ignore format: a table

function generate(random: Random): Input {
  const uris = random.list(3, () => random.pick(URIS));
  const body = random.oneIn(5)
    ? random.text(["{", "}", '"redirect_uris"', ":", "[", "]", ",", '"a"', "null", "1"], 10)
    : JSON.stringify({ redirect_uris: random.oneIn(12) ? uris[0] : uris, client_name: "x", x: { y: [1] } });
  return { form: random.text(PIECES, 14), body: Buffer.from(body) };
}

export const oauthForms = defineTarget<Input>({
  name: "oauth-forms",
  seeds: [
    {
      form: "grant_type=authorization_code&code=a%20b&redirect_uri=http%3A%2F%2F127.0.0.1",
      body: Buffer.from('{"redirect_uris":["https://a.example/cb"]}'),
    },
    { form: "a=1&A=2", body: Buffer.from("{}") },
  ],
  smokeCases: 2_500,
  generate,
  run: ({ form, body }) => `${formOutcome(form)} ${registrationOutcome(body)}`,
});
