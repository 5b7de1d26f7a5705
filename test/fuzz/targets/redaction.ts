/**
 * A secret at a place where secrets stand never comes out: not as it is, not in base64 and not percent-encoded, in
 * headers, queries, bodies, URLs and configuration.
 */
import { z } from "zod";
import { shownConfig } from "../../../src/config/schema/shown-config.ts";
import { secret } from "../../../src/core/schema.ts";
import { createRedaction, redactBody, redactQuery, shownUrl, withoutSecrets } from "../../../src/trace/redact.ts";
import type { Random } from "../random.ts";
import { defineTarget, expect } from "../target.ts";

type Input = { readonly place: string; readonly before: string; readonly secret: string; readonly after: string };

const redaction = createRedaction(["x-internal-token"]);
redaction.hideAlso({ headers: ["x-team-key"], parameters: ["team_key"] });
const SCHEMA = z.strictObject({
  key: secret(),
  nested: z.array(z.strictObject({ token: secret().optional(), url: z.string() })),
});

/** By place: what is shown of a secret that stands there. */
const PLACES: Readonly<Record<string, (input: Input) => string>> = {
  header: ({ secret: value, before }) =>
    ["authorization", "cookie", "set-cookie", "x-api-key", "x-internal-token", "x-team-key", "proxy-authorization"]
      .map((name) => JSON.stringify(redaction.headers([name, `${before}${value}`, "x", "y", name, value])))
      .join(),
  quoted: ({ secret: value, before, after }) =>
    redaction.scrub(`${before}${value}${after}`, ["authorization", `Bearer ${value}`]),
  location: ({ secret: value, before, after }) =>
    JSON.stringify(
      redaction.headers([
        "location",
        `https://a.example/cb?x=${encodeURIComponent(before)}&code=${encodeURIComponent(value)}&y=${encodeURIComponent(after)}`,
      ]),
    ),
  query: ({ secret: value, before, after }) =>
    ["access_token", "key", "API_KEY", "%61ccess_token", "client_secret", "code"]
      .map((name) =>
        redactQuery(
          `${encodeURIComponent(before)}=1&${name}=${encodeURIComponent(value)}&x=${encodeURIComponent(after)}`,
        ),
      )
      .join("\n") + redaction.query(`team_key=${encodeURIComponent(value)}`),
  form: ({ secret: value, after }) =>
    ["client_secret", "code", "password", "refresh_token", "%70assword", "Password"]
      .map((name) =>
        redactBody(
          Buffer.from(`a=${encodeURIComponent(after)}&${name}=${encodeURIComponent(value)}`),
          "application/x-www-form-urlencoded",
        ).toString(),
      )
      .join("\n"),
  json: ({ secret: value, after }) =>
    ["access_token", "id_token", "client_secret", "refresh_token", "password"]
      .map((name) =>
        redactBody(
          Buffer.from(JSON.stringify({ x: after, [name]: value, y: 1 }, undefined, after.length % 3)),
          "application/json",
        ).toString("utf8"),
      )
      .join("\n"),
  "url password": ({ secret: value, after }) =>
    shownUrl(`https://user:${value.replace(/[/?#]/g, "")}@host.example/${encodeURIComponent(after)}`),
  "url parameter": ({ secret: value }) => shownUrl(`https://host.example/a?x=1&${"any"}=${encodeURIComponent(value)}`),
  config: ({ secret: value }) =>
    JSON.stringify(
      shownConfig(
        SCHEMA,
        { key: value, nested: [{ token: value, url: `https://u:${encodeURIComponent(value)}@h/` }] },
        redaction,
      ),
    ),
  repeated: ({ secret: value, before, after }) => withoutSecrets(`${before}${value}${after}${value}`, [value]),
};

const PIECES = [
  "s3cr3t",
  "Zq",
  "9",
  "_",
  "-",
  ".",
  "~",
  "+",
  "/",
  "=",
  "@",
  ":",
  "%",
  " ",
  '"',
  "\\",
  "é",
  "&",
  ";",
  ",",
  "\n",
];

export const redactionTarget = defineTarget<Input>({
  name: "redaction",
  seeds: Object.keys(PLACES).map((place) => ({ place, before: "a ", secret: "s3cr3tZq9-long-enough", after: " b" })),
  smokeCases: 8_000,
  generate: (random: Random) => ({
    place: random.pick(Object.keys(PLACES)),
    before: random.text(["a", " ", "=", ";", "Basic ", "é", '"', "&"], 4),
    secret: `Zq9${random.text(PIECES, 6)}7Kx${random.text(PIECES, 4)}W`,
    after: random.text(["a", " ", "=", ";", "é", '"', "&"], 4),
  }),
  run(input) {
    const show = Object.hasOwn(PLACES, input.place) ? PLACES[input.place] : undefined;
    // What a mutation made short is a word, not a secret; it may stand anywhere.
    if (show === undefined || input.secret.length < 8 || !/[A-Z].*[0-9]/.test(input.secret)) return "no secret";
    if (![input.before, input.secret, input.after].every(isWellFormed)) return "no text";
    if ((input.before + input.after).includes(input.secret)) return "elsewhere as well";
    const shown = show(input);
    const inUrl = input.secret.replace(/[/?#]/g, "");
    const forms = [
      input.secret,
      Buffer.from(input.secret).toString("base64"),
      Buffer.from(input.secret).toString("base64url"),
      JSON.stringify(input.secret).slice(1, -1),
    ];
    forms.push(encodeURIComponent(input.secret));
    // Half of a secret is too much as well.
    if (input.place === "url password") forms.push(inUrl.slice(-Math.max(8, inUrl.length >> 1)));
    for (const form of forms)
      expect(form.length < 8 || !shown.includes(form), `a secret is shown (${input.place}): ${shown.slice(0, 300)}`);
    return `${input.place} ${/[^\w-]/.test(input.secret)}`;
  },
});

function isWellFormed(text: string): boolean {
  return Buffer.from(text).toString() === text;
}
