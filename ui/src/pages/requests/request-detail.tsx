/**
 * Shows the details of one request: the reason for its outcome, a summary, its waterfall, and its attributes.
 */
import { useEffect, useState } from "preact/hooks";
import { durationText } from "../../../../src/base/format.ts";
import { isReadOnly } from "../../data/about.ts";
import { dump } from "../../data/dump.ts";
import { type RequestDetail, readRequest } from "../../data/requests.ts";
import { captureNext } from "../../data/trace.ts";
import { pageHref, setParams } from "../../frame/router.ts";
import { CopyButton } from "../../parts/copy.tsx";
import { Fold } from "../../parts/fold.tsx";
import { visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { Panel, Skeleton } from "../../parts/panel.tsx";
import { levelOfRequest, Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { curlOf } from "./curl.ts";
import { Reason, WithCode } from "./reason.tsx";
import { Resend } from "./resend.tsx";
import { Summary } from "./summary.tsx";
import { barsOfRecord } from "./trace-bars.ts";
import { TraceView } from "./trace-view.tsx";
import { Waterfall } from "./waterfall.tsx";

export function RequestDetailPanel({ id }: { id: string }) {
  const [detail, setDetail] = useState<RequestDetail | string | undefined>(undefined);
  useEffect(() => {
    const stop = new AbortController();
    readRequest(id, stop.signal).then(
      (found) => setDetail(found ?? "This request is no longer in memory."),
      (error: Error) => setDetail(error.message),
    );
    return () => stop.abort();
  }, [id]);
  return (
    <Panel
      title={
        <>
          Request <span class="mono">{visible(id)}</span>
        </>
      }
      end={
        <button type="button" class="button quiet" data-close onClick={() => setParams({ id: "", event: "" })}>
          Close
        </button>
      }
    >
      {detail === undefined ? (
        <Skeleton />
      ) : typeof detail === "string" ? (
        <p class="note warn">{visible(detail)}</p>
      ) : (
        <Detail detail={detail} />
      )}
    </Panel>
  );
}

function Detail({ detail }: { detail: RequestDetail }) {
  const port = dump.value.value?.listeners.find(({ name }) => name === detail.listener)?.port;
  const dropped = detail.llm?.dropped === undefined ? undefined : detail.story.find(isAboutDropped);
  return (
    <div class="stack">
      <Reason detail={detail} />
      {dropped === undefined ? null : (
        <p class="note warn sentence">
          <WithCode text={dropped} />
        </p>
      )}
      <div class="row">
        <Status level={levelOfRequest(detail)}>{detail.status ?? detail.end}</Status>
        <span class="mono wrap">
          {detail.method} {visible(detail.path)}
        </span>
        <span class="muted">
          {durationText(detail.durationMs)} · <Ago at={detail.time} />
        </span>
      </div>
      <Summary detail={detail} />
      <div class="row">
        <CopyButton text={() => curlOf(detail, port)} label="Copy as curl" />
        {isReadOnly.value ? null : (
          <>
            <button type="button" class="button" onClick={() => captureNext(likeThis(detail))}>
              Trace next similar request
            </button>
            <a class="button" href={pageHref("cel", { request: detail.id })}>
              Open in CEL
            </a>
          </>
        )}
      </div>
      {isReadOnly.value ? null : <Fold title="Edit and resend">{() => <Resend detail={detail} />}</Fold>}
      {detail.isShort ? (
        <p class="muted">
          This is an older request: reasons, and the times of policies and the backend, are no longer in memory.
        </p>
      ) : null}
      {detail.trace ? <TraceView events={detail.trace} /> : <Waterfall bars={barsOfRecord(detail)} />}
      <details>
        <summary>All steps</summary>
        <ol class="story">
          {detail.story.map((sentence) => (
            <li key={sentence}>
              <WithCode text={sentence} />
            </li>
          ))}
        </ol>
      </details>
      <details>
        <summary>Attributes</summary>
        <Json value={detail.requestState} open={2} />
      </details>
    </div>
  );
}

function isAboutDropped(sentence: string): boolean {
  return sentence.startsWith("Left out");
}

function likeThis({ method, path }: RequestDetail): string {
  return `request.method == ${JSON.stringify(method)} && request.path == ${JSON.stringify(path)}`;
}
