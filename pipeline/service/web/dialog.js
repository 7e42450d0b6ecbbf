// The dialog over the results: which result it shows, and what its buttons do (viewer.js draws it).

import { queryOf } from "./address.js";
import { $, toast } from "./dom.js";
import { focusCard } from "./grid.js";
import { ask, change } from "./history.js";
import { mark } from "./learning.js";
import { copyLink } from "./query.js";
import { queryAddress } from "./start.js";
import { lists, marks, modelName, state } from "./state.js";
import { closeViewer, drawViewer } from "./viewer.js";

export function openDialog() {
  const { request, ranking, other, before } = state;
  const second = lists()[1]?.some((image) => image.id === request.open) && !lists()[0].some((image) => image.id === request.open);
  const images = lists()[second ? 1 : 0];
  const image = images.find((one) => one.id === request.open);
  if (!image) {
    toast("The linked image is not among the results shown.");
    return change({ open: undefined, explain: undefined }, { replace: true });
  }
  const by = second ? other : ranking;
  const step = (by) => {
    const next = images[images.indexOf(image) + by];
    if (next) change({ open: next.id }, { replace: true });
  };
  const query = queryOf(request);
  drawViewer({
    image,
    images,
    best: by.results[0]?.score,
    mark: marks.of.get(image.id),
    explain: Boolean(request.explain),
    learner: by === before ? null : by.learner,
    model: by === before ? before.name : modelName(by.learner),
    query: { values: query, address: queryAddress(query, 1024) },
    act: {
      close: closeDialog,
      left: () => step(-1),
      right: () => step(1),
      pivot: () => ask({ id: image.id }),
      relevant: () => mark(image, 1),
      not: () => mark(image, -1),
      explain: toggleExplanation,
      copy: copyLink,
    },
  });
}

export const toggleExplanation = () => change({ explain: state.request.explain ? undefined : 1 }, { replace: true });

function closeDialog() {
  if (!leaveDialog()) return; // it was closed already
  if (history.state?.overlay) history.back();
  else change({ open: undefined, explain: undefined }, { replace: true });
}

// Close the dialog and give the focus back to the result. False: it was closed already.
export function leaveDialog() {
  const id = closeViewer();
  if (id !== null && queryOf(state.request)) focusCard(id) || $(`#compare td[data-id="${id}"] a`)?.focus();
  return id !== null;
}
