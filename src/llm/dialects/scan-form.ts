/**
 * The model in a form with files (image edits, transcriptions), and where it stands, so that it can be replaced without
 * touching the files. A form that names two models, or is cut, is refused: the provider might read the other one.
 */
import { modelProblem, type RequestScan, type ScanResult } from "./scan-request.ts";

const BOUNDARY = /^multipart\/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i;
const BLANK_LINE = Buffer.from("\r\n\r\n");
const MAX_PARTS = 256;
const MAX_PART_HEAD_BYTES = 4096;

export function scanForm(bytes: Buffer, contentType: string): ScanResult {
  const match = BOUNDARY.exec(contentType);
  const boundary = match?.[1] ?? match?.[2];
  if (boundary === undefined) return refused("the form has no boundary");
  const delimiter = Buffer.from(`--${boundary}`);
  let at = bytes.indexOf(delimiter);
  let model: { text: string; start: number; end: number } | undefined;
  let stream: boolean | undefined;
  for (let parts = 0; at >= 0 && !isLast(bytes, at + delimiter.length); parts++) {
    if (parts >= MAX_PARTS) return refused(`the form has more than ${MAX_PARTS} parts`);
    const start = at + delimiter.length + 2;
    const blank = bytes.indexOf(BLANK_LINE, start);
    const next = bytes.indexOf(`\r\n--${boundary}`, start);
    if (blank < 0 || next < 0 || blank > next || blank - start > MAX_PART_HEAD_BYTES)
      return refused("the form is not valid");
    const name = fieldName(bytes.toString("latin1", start, blank));
    const value = { start: blank + BLANK_LINE.length, end: next };
    if (name === "model") {
      if (model) return refused("the form has more than one 'model'");
      model = { text: bytes.toString("utf8", value.start, value.end), ...value };
    } else if (name === "stream") stream = bytes.toString("latin1", value.start, value.end).toLowerCase() === "true";
    at = next + 2;
  }
  if (at < 0) return refused("the form is not valid");
  const problem = model && (/[\r\n]/.test(model.text) ? "'model' is not valid" : modelProblem(model.text));
  if (problem !== undefined) return refused(problem);
  const scan: RequestScan = {
    model: model?.text,
    stream,
    modelSpan: model && { start: model.start, end: model.end },
    streamSpan: undefined,
    streamOptionsSpan: undefined,
    bodyStart: 0,
    isEmpty: false,
    isForm: true,
  };
  return { ok: true, scan };
}

function isLast(bytes: Buffer, at: number): boolean {
  return bytes[at] === 45 && bytes[at + 1] === 45;
}

/** Undefined for a file, whatever its name. */
function fieldName(head: string): string | undefined {
  const disposition = /^content-disposition:\s*form-data;(.*)$/im.exec(head)?.[1] ?? "";
  if (/;?\s*filename\*?=/i.test(disposition)) return undefined;
  return /(?:^|;)\s*name=(?:"([^"]*)"|([^\s;]+))/i
    .exec(disposition)
    ?.slice(1)
    .find((name) => name !== undefined);
}

function refused(reason: string): ScanResult {
  return { ok: false, reason };
}
