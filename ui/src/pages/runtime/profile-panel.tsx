/**
 * Takes a CPU or heap profile and shows it as a flame graph. The profile can be downloaded.
 */
import { useEffect, useState } from "preact/hooks";
import { getBytes } from "../../data/api.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Flame } from "./flame.tsx";
import { type Profile, readProfile } from "./pprof.ts";

type Taken = { readonly profile: Profile; readonly href: string; readonly name: string };

export function ProfilePanel() {
  const [seconds, setSeconds] = useState(5);
  const [running, setRunning] = useState<string | undefined>(undefined);
  const [taken, setTaken] = useState<Taken | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  useEffect(() => () => URL.revokeObjectURL(taken?.href ?? ""), [taken]);

  const take = async (kind: "cpu" | "heap"): Promise<void> => {
    setRunning(kind === "cpu" ? `profiling for ${seconds} s` : "reading the heap");
    setProblem(undefined);
    try {
      const bytes = await getBytes(kind === "cpu" ? `debug/pprof/profile?seconds=${seconds}` : "debug/pprof/heap");
      const profile = await readProfile(bytes);
      setTaken({ profile, href: URL.createObjectURL(new Blob([bytes])), name: `gateway-${kind}-${stamp()}.pb.gz` });
    } catch (error) {
      setProblem((error as Error).message);
    }
    setRunning(undefined);
  };
  return (
    <Panel
      title="Profile"
      end={
        <>
          <label class="row">
            <span class="muted">seconds</span>
            <input
              class="input number"
              type="number"
              min={1}
              max={300}
              value={seconds}
              onInput={(event) => setSeconds(event.currentTarget.valueAsNumber || 1)}
            />
          </label>
          <button type="button" class="button" disabled={running !== undefined} onClick={() => take("cpu")}>
            CPU
          </button>
          <button type="button" class="button" disabled={running !== undefined} onClick={() => take("heap")}>
            Heap
          </button>
          {taken ? (
            <a class="button" href={taken.href} download={taken.name}>
              Download
            </a>
          ) : null}
        </>
      }
    >
      <p class="muted" role="status">
        {running ??
          (taken
            ? visible(taken.name)
            : "Take a CPU or heap profile. It appears here as a flame graph; the file also works with go tool pprof.")}
      </p>
      {problem === undefined ? null : <p class="note bad">{visible(problem)}</p>}
      {taken ? <Flame key={taken.href} profile={taken.profile} /> : null}
    </Panel>
  );
}

function stamp(): string {
  return new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-");
}
