import assert from "node:assert/strict";
import { test } from "node:test";
import { keyPrincipal, shownPrincipal, tokenPrincipal, userPrincipal } from "./principal.ts";

test("a refreshed token of the same subject is the same principal", () => {
  const first = tokenPrincipal({ iss: "i", sub: "u", iat: 1, jti: "a" }, "one");
  assert.equal(first, tokenPrincipal({ iss: "i", sub: "u", iat: 2, azp: "c" }, "two"));
});

/** All identities are different, whatever field is missing. */
const ALL_DIFFERENT: Readonly<Record<string, string>> = {
  "a subject": tokenPrincipal({ iss: "i", sub: "u" }, "a"),
  "another subject": tokenPrincipal({ iss: "i", sub: "v" }, "b"),
  "the subject of another issuer": tokenPrincipal({ iss: "j", sub: "u" }, "c"),
  "issuer and subject cut elsewhere": tokenPrincipal({ iss: 'i","u', sub: "" }, "d"),
  "a bar in the issuer": tokenPrincipal({ iss: "i|u", sub: "v" }, "e"),
  "a bar in the subject": tokenPrincipal({ iss: "i", sub: "u|v" }, "f"),
  "a line in the subject": tokenPrincipal({ iss: "i", sub: 'u\nkey:"x"' }, "g"),
  "no subject": tokenPrincipal({ iss: "i", azp: "client", client_id: "client", appid: "client" }, "h"),
  "no subject, the same claims": tokenPrincipal({ iss: "i", azp: "client", client_id: "client", appid: "client" }, "k"),
  "an empty subject": tokenPrincipal({ iss: "i", sub: "" }, "l"),
  "another empty subject": tokenPrincipal({ iss: "i", sub: "" }, "m"),
  "a subject that is a number": tokenPrincipal({ iss: "i", sub: 1 }, "n"),
  "the same number": tokenPrincipal({ iss: "i", sub: 1 }, "o"),
  "the number as a string": tokenPrincipal({ iss: "i", sub: "1" }, "p"),
  "a subject that is a list": tokenPrincipal({ iss: "i", sub: ["u"] }, "q"),
  "a subject that is null": tokenPrincipal({ iss: "i", sub: null }, "r"),
  "no issuer": tokenPrincipal({ sub: "u" }, "s"),
  "no claims": tokenPrincipal({}, "t"),
  "an API key": keyPrincipal(Buffer.from("a")),
  "another API key": keyPrincipal(Buffer.from("b")),
  "a user": userPrincipal("u", "u:$2b$hash"),
  "the user of the same name in another file": userPrincipal("u", "u:$2b$other"),
};

test("no two users are the same principal, whatever claim is missing", () => {
  const all = Object.values(ALL_DIFFERENT);
  for (const [name, principal] of Object.entries(ALL_DIFFERENT))
    assert.equal(all.filter((one) => one === principal).length, 1, name);
});

test("the displayed principal has no line breaks and no digest that a guess could be checked against", () => {
  for (const [name, principal] of Object.entries(ALL_DIFFERENT)) {
    const shown = shownPrincipal(principal);
    assert.doesNotMatch(shown, /[\n\0]|[0-9a-f]{9}/, name);
  }
  assert.equal(shownPrincipal(userPrincipal("u", "u:$2b$hash")), 'basic:"u"');
});
