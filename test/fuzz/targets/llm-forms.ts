/**
 * The model of a form with files: what is read is what the platform's own parser reads, and no part of the body could be
 * taken for another model by a server that is less strict about line ends, quotes and heads.
 */
import { scanForm } from "../../../src/llm/request/read-request.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

type Input = { readonly type: string; readonly body: Buffer };

/** Names that some server might read from what it might take for the heads of parts. */
function lenientNames(body: string): string[] {
  return body
    .split("--XX")
    .slice(1)
    .flatMap((part) => {
      // With lines that continue it, and whatever ends a line.
      const lines = (part.split(/\r?\n\r?\n/, 1)[0] ?? "").replace(/[\r\n]+[ \t]+/g, " ").split(/[\r\n]+/);
      const head = lines.filter((line) => /^\s*content-disposition\s*:/i.test(line)).join("\n");
      return [...head.matchAll(/name\*?\s*=\s*(?:[\w-]*'[^']*')?["']?([^;"'\r\n]*)/gi)]
        .map((found) => decode((found[1] ?? "").replaceAll("\\", "")).trim())
        .filter((name) => name === "model");
    });
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function run({ type, body }: Input): Promise<string> {
  const result = scanForm(body, type);
  if (!result.ok) return result.reason;
  const { model, modelSpan } = result.scan;
  if (modelSpan !== undefined)
    expectSame(body.toString("utf8", modelSpan.start, modelSpan.end), model, "the model at its place");
  let parsed: FormData;
  try {
    parsed = await new Response(new Uint8Array(body), { headers: { "content-type": type } }).formData();
  } catch {
    // The platform is stricter about what is in names of files: the provider answers such a form itself.
    return "refused by the platform";
  }
  expectSame(parsed.getAll("model"), model === undefined ? [] : [model], "the models");
  // A text of the form may hold anything but the boundary.
  expect(lenientNames(body.toString("latin1")).length <= (model === undefined ? 0 : 1), "another model could be read");
  return `${model === undefined} ${result.scan.stream} ${[...parsed.keys()].length}`;
}

const NAMES = ["model", "model", "Model", "stream", "file", "_charset_", "mo%64el", "model\\", " model"];
const HEADS = [
  "content-type: text/plain", "Content-Type: audio/wav", "content-transfer-encoding: base64", "content-type: text/plain; charset=utf-16",
  " folded", "x", 'content-disposition: form-data; name="model"', "x-a: b\n",
]; // biome-ignore format: a table
const ENDS = ["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", ""];
const VALUES = ["whisper-1", "true", "a", "", "\0\xff", "x\r\ny", "--X", "\xe9", 'name="model"'];

function part(random: Random): string {
  const end = (): string => (random.oneIn(12) ? random.pick(ENDS) : "\r\n");
  const name = random.oneIn(6) ? random.pick(NAMES) : random.pick(["model", "file", "stream"]);
  const quoted = random.oneIn(8) ? random.pick([name, `'${name}'`, `"${name}`]) : `"${name}"`;
  const filename = random.pick([
    "",
    "",
    "",
    '; filename="a.wav"',
    '; filename=""',
    "; filename*=utf-8''a",
    '; filename="\\"',
    '; filename="a\\"b"',
    '; filename="\\"; name=model; x=\\""',
  ]);
  const equals = random.oneIn(15) ? random.pick(["*=utf-8''", " = ", "=="]) : "=";
  const disposition = `content-disposition: form-data; name${equals}${quoted}${filename}`;
  const extra = random.oneIn(4) ? random.pick(HEADS) + end() : "";
  const padding = random.oneIn(20) ? random.pick([" ", "Y", "-", "\t"]) : "";
  return `--XX${padding}${end()}${disposition}${end()}${extra}${end()}${random.pick(VALUES)}${end()}`;
}

export const llmForms = defineTarget<Input>({
  name: "llm-forms",
  seeds: [
    {
      type: "multipart/form-data; boundary=XX",
      body: Buffer.from(
        '--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--XX\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n\0\x01\r\n--XX--\r\n',
      ),
    },
    {
      type: 'multipart/form-data; charset=utf-8; boundary="XX"',
      body: Buffer.from(
        '--XX\r\ncontent-disposition: form-data; name="stream"\r\n\r\ntrue\r\n--XX\r\ncontent-disposition: form-data; name=model\r\n\r\nm\r\n--XX--',
      ),
    },
  ],
  smokeCases: 1_500,
  generate: (random) => ({
    type: random.oneIn(10) ? 'multipart/form-data; boundary="XX"' : "multipart/form-data; boundary=XX",
    body: Buffer.from(
      `${random.list(4, () => part(random)).join("")}--XX--${random.pick(["", "\r\n", "x"])}`,
      "latin1",
    ),
  }),
  run,
});
