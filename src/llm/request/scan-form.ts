/**
 * The model in a form with files (image edits, transcriptions), and where it stands, so that it can be replaced without
 * touching the files; and the models that other fields name, also inside of JSON. Rules and keys trust it, so it reads forms only as all servers do: what one of them might read in
 * another way (two models, lines that end otherwise, heads in odd forms) is refused.
 */

import { foldCase } from "../../base/fold-case.ts";
import { finish } from "../../base/turns.ts";
import { isContent, ModelNames, modelsInJson, namesModel } from "./named-models.ts";
import { modelProblem, type RequestScan, type ScanResult } from "./scan-request.ts";

const BOUNDARY =
  /^multipart\/form-data\s*;(?:[^"]*;)?\s*boundary=(?:"([^"\\]{1,70})"|([^\s;,"'()<>@:\\/[\]?={}]{1,70}))\s*(?:;|$)/i;
const BLANK_LINE = Buffer.from("\r\n\r\n");
const MAX_PARTS = 256;
const MAX_PART_HEAD_BYTES = 4096;
/** JSON in a field describes a session or options: it is short. */
const MAX_JSON_FIELD_BYTES = 64 * 1024;
const [OPEN_BRACKET, OPEN_BRACE] = [91, 123];
const [CR, LF, DASH] = [13, 10, 45];

/** A line of a part's head: no control characters, not continued on the next. */
const HEAD_LINE = /^([\w!#$%&'*+.^`|~-]+):[ \t]*([ -~\x80-\xff]*)$/;
/**
 * One way to write each parameter, in any order; `filename` makes a part a file. Whether `\"` ends a text is not agreed on: it
 * may stand only in a name of a file in which nobody could find a further parameter.
 */
const DISPOSITION =
  /^form-data((?:; ?name=(?:"[\w.[\]-]+"|[\w.[\]-]+)|; ?filename=(?:"(?:[^"\\]|\\(?!"))*"|"(?:[^"\\;=]|\\[^";=])*\\"(?:[^"\\;=]|\\[^;=])*"|[\w.-]+)|; ?filename\*=[\w.%'!#$&+^`|~-]+)+)$/i;
const PARAMETER = /; ?(name|filename\*?)=(?:"([^"]*)"|([^;]+))/gi;
/** What a text may be sent as. */
const PLAIN_TEXT = /^text\/plain(?:\s*;\s*charset="?(?:utf-8|us-ascii)"?)?$/i;

interface Part {
  readonly name: string;
  readonly isFile: boolean;
  /** Its bytes are the text. */
  readonly isPlain: boolean;
}

export function scanForm(bytes: Buffer, contentType: string): ScanResult {
  const match = BOUNDARY.exec(contentType);
  const boundary = match?.[1] ?? match?.[2];
  if (boundary === undefined || contentType.toLowerCase().split("boundary").length !== 2)
    return refused("the form has no boundary, or not a plain one");
  const delimiter = Buffer.from(`--${boundary}`, "latin1");
  const others = new ModelNames();
  const fields = new Map<string, { text: string; start: number; end: number }>();
  if (bytes.indexOf(delimiter) !== 0) return refused("the form does not begin with its boundary");
  let at = 0;
  for (let parts = 0; !isLast(bytes, at + delimiter.length); parts++) {
    if (parts >= MAX_PARTS) return refused(`the form has more than ${MAX_PARTS} parts`);
    const start = at + delimiter.length;
    const blank = bytes.indexOf(BLANK_LINE, start);
    // The boundary stands nowhere else: nobody can disagree on where a part ends.
    const next = bytes.indexOf(delimiter, start);
    const end = next - 2;
    if (!isLineEnd(bytes, start) || blank < 0 || next < 0 || !isLineEnd(bytes, end) || blank + BLANK_LINE.length > end)
      return refused("the form is not valid");
    if (blank - start > MAX_PART_HEAD_BYTES) return refused("a part of the form has too long a head");
    const part = readHead(bytes.toString("latin1", start + 2, blank));
    if (part === undefined) return refused("a part of the form has a head that is not plain");
    const { isFile, isPlain } = part;
    const value = { start: blank + BLANK_LINE.length, end };
    const name = foldCase(part.name);
    if (name === "model" || name === "stream" || name === "_charset_") {
      if (name !== part.name) return refused(`the field ${JSON.stringify(part.name)} must be written in lower case`);
      if (isFile || !isPlain || name === "_charset_") return refused(`'${name}' must be a plain text`);
      if (fields.has(name)) return refused(`the form has more than one '${name}'`);
      fields.set(name, { text: bytes.toString("utf8", value.start, value.end), ...value });
    } else if (namesModel(part.name)) {
      if (isFile || !isPlain) return refused(`${JSON.stringify(part.name)} must be a plain text`);
      others.add(bytes.toString("utf8", value.start, value.end).trim());
    } else if (!isContent(part.name) && isJson(bytes, value.start, end)) {
      if (end - value.start > MAX_JSON_FIELD_BYTES)
        return refused(`the field ${JSON.stringify(part.name)} is too large`);
      finish(modelsInJson(bytes.subarray(value.start, end), true, others));
    }
    at = next;
  }
  if (!endsHere(bytes, at + delimiter.length + 2)) return refused("the form goes on after its end");
  const model = fields.get("model");
  const problem = model && (/[\r\n]/.test(model.text) ? "'model' is not valid" : modelProblem(model.text));
  if (problem !== undefined) return refused(problem);
  const stream = fields.get("stream");
  const scan: RequestScan = {
    model: model?.text,
    stream: stream && stream.text.toLowerCase() === "true",
    modelSpan: model && { start: model.start, end: model.end },
    streamSpan: undefined,
    streamOptionsSpan: undefined,
    bodyStart: 0,
    isEmpty: false,
    isForm: true,
    formModels: others.names,
  };
  return { ok: true, scan };
}

function isJson(bytes: Buffer, start: number, end: number): boolean {
  let at = start;
  while (at < end && (bytes[at] as number) <= 32) at += 1;
  return at < end && (bytes[at] === OPEN_BRACE || bytes[at] === OPEN_BRACKET);
}

function isLast(bytes: Buffer, at: number): boolean {
  return bytes[at] === DASH && bytes[at + 1] === DASH;
}

function isLineEnd(bytes: Buffer, at: number): boolean {
  return bytes[at] === CR && bytes[at + 1] === LF;
}

function endsHere(bytes: Buffer, at: number): boolean {
  return at === bytes.length || (isLineEnd(bytes, at) && at + 2 === bytes.length);
}

/** Undefined if it is not written in the one plain way. */
function readHead(head: string): Part | undefined {
  const lines = new Map<string, string>();
  for (const line of head.split("\r\n")) {
    const [, name, value] = HEAD_LINE.exec(line) ?? [];
    if (name === undefined || value === undefined || lines.has(name.toLowerCase())) return undefined;
    lines.set(name.toLowerCase(), value.trim());
  }
  const [, written] = DISPOSITION.exec(lines.get("content-disposition") ?? "") ?? [];
  if (written === undefined) return undefined;
  const parameters = new Map<string, string>();
  for (const [, name = "", quoted, plain] of written.matchAll(PARAMETER)) {
    if (parameters.has(name.toLowerCase())) return undefined;
    parameters.set(name.toLowerCase(), quoted ?? plain ?? "");
  }
  const name = parameters.get("name");
  if (name === undefined) return undefined;
  const coding = lines.get("content-transfer-encoding") ?? "binary";
  return {
    name,
    isFile: parameters.size > 1,
    isPlain: /^(?:binary|[78]bit)$/i.test(coding) && PLAIN_TEXT.test(lines.get("content-type") ?? "text/plain"),
  };
}

function refused(reason: string): ScanResult {
  return { ok: false, reason };
}
