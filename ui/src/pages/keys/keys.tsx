/**
 * The Keys & spend page: spend by key, user, team, or model over time, and the API keys of the store.
 */
import { mayOperate } from "../../data/about.ts";
import { hasHistory } from "../../data/traffic.ts";
import { Empty, PageHead } from "../../parts/panel.tsx";
import { KeyList } from "./key-list.tsx";
import { MemorySpend, Spend } from "./spend.tsx";

export function Keys() {
  return (
    <>
      <PageHead title="Keys & spend" doc="What each key, user, team, and model costs." />
      {mayOperate.value ? (
        <>
          {hasHistory.value ? <Spend /> : <MemorySpend />}
          <KeyList />
        </>
      ) : (
        <Empty title="Only operators see keys and spend" />
      )}
    </>
  );
}
