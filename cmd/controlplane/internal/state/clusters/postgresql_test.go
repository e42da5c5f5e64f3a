package clusters_test

import (
	"database/sql"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// onPostgreSQL is the name of the test whose subtests are on PostgreSQL.
const onPostgreSQL = "TestOnPostgreSQLEverythingIsTheSame"

// postgres is the server of that test.
var postgres *pgtest.Server

func TestOnPostgreSQLEverythingIsTheSame(t *testing.T) {
	t.Parallel()
	postgres = pgtest.Shared(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"AClusterShowsItsTokenOnce", TestAClusterShowsItsTokenOnce},
		{"TheAdministrationNeedsItsToken", TestTheAdministrationNeedsItsToken},
		{"OnlyARealChangeRaisesTheGenerationAndByOne", TestOnlyARealChangeRaisesTheGenerationAndByOne},
		{"ARefusedRequestChangesNothing", TestARefusedRequestChangesNothing},
		{"AFullDiskRefusesWritesAndServesReads", TestAFullDiskRefusesWritesAndServesReads},
		{"DeletedServicesStayAsTombstonesUntilTheyArePutAgain", TestDeletedServicesStayAsTombstonesUntilTheyArePutAgain},
		{"EverythingThatIsPutIsServed", TestEverythingThatIsPutIsServed},
		{"PermissionForAMassDeletionReachesTheAgentAndLapses", TestAnApprovedDigestReachesTheAgentAndOutlivesOtherChanges},
		{"ANewEpochAfterARestoreIsServedAndReplacesOldReports", TestANewEpochAfterARestoreIsServedAndReplacesOldReports},
		{"NamespacesAreDecidedOnceAndNeverShared", TestNamespacesAreDecidedOnceAndNeverShared},
		{"ConcurrentChangesGetGaplessGenerationsAndConsistentBodies", TestConcurrentChangesGetGaplessGenerationsAndConsistentBodies},
		{"NoSecretIsEverLogged", TestNoSecretIsEverLogged},
		{"MetricsCountRequestsByRoute", TestMetricsCountRequestsByRoute},
		{"ANewClusterIsServedAnEmptyCompleteState", TestANewClusterIsServedAnEmptyCompleteState},
		{"AServedBodyCutAtAnyByteIsRefusedByTheAgent", TestAServedBodyCutAtAnyByteIsRefusedByTheAgent},
		{"AnUnchangedStateIsAnsweredWithoutABody", TestAnUnchangedStateIsAnsweredWithoutABody},
		{"ATokenOpensItsOwnClusterOnly", TestHostileATokenOpensItsOwnClusterOnly},
		{"ATokenOfAnAgentNeverReachesTheAdministration", TestATokenOfAnAgentNeverReachesTheAdministration},
		{"AuthenticationComesBeforeEverythingElse", TestAuthenticationComesBeforeEverythingElse},
		{"AStreamNamesEachVersionOfThisAndOfAnotherProcess", TestAStreamNamesEachVersionOfThisAndOfAnotherProcess},
		{"AnOlderCopyOfTheDatabaseIsNamedForWhatItIs", TestAnOlderCopyOfTheDatabaseIsNamedForWhatItIs},
		{"StatusIsKeptAndShown", TestStatusIsKeptAndShown},
		{"ADeletedServiceStandsAsPendingUntilTheAgentHasWorkedItOff", TestADeletedServiceStandsAsPendingUntilTheAgentHasWorkedItOff},
		{"TheLastServiceStandsAsDeletedOnceTheAgentHasSaidSo", TestTheLastServiceStandsAsDeletedOnceTheAgentHasSaidSo},
		{"AHeldDeletionIsNotDeleted", TestAHeldDeletionIsNotDeleted},
		{"WhatFailsForTheClusterIsThatOfItsNewestReport", TestWhatFailsForTheClusterIsThatOfItsNewestReport},
		{"ATombstoneIsAnIdentityAlone", TestATombstoneIsAnIdentityAlone},
		{"ATombstoneEndsWhenItIsOldAndProvenGone", TestATombstoneEndsWhenItIsOldAndProvenGone},
		{"ATombstoneOfAProjectEndsByTheSameRule", TestATombstoneOfAProjectEndsByTheSameRule},
		{"TombstonesOfManyProjectsEnd", TestTombstonesOfManyProjectsEnd},
		{"OneServiceWithoutAProofHidesNoOther", TestOneServiceWithoutAProofHidesNoOther},
		{"CapacityIsKeptAndGathered", TestCapacityIsKeptAndGathered},
		{"OnlyTheNewestCapacityIsKept", TestOnlyTheNewestCapacityIsKept},
		{"ABadCapacityReportIsRefused", TestABadCapacityReportIsRefused},
		{"ARecordIsStoredOnce", TestARecordIsStoredOnce},
		{"ABadRecordAmongGoodOnesIsListed", TestABadRecordAmongGoodOnesIsListed},
		{"ABatchThatCannotBeReadIsRefusedWhole", TestABatchThatCannotBeReadIsRefusedWhole},
		{"AFullBatchIsStored", TestAFullBatchIsStored},
		{"AClusterCannotBillTheProjectOfAnother", TestAClusterCannotBillTheProjectOfAnother},
		{"ConcurrentBatchesOfTwoAgentsStoreEachRecordOnce", TestConcurrentBatchesOfTwoAgentsStoreEachRecordOnce},
		{"RecordsAreKeptForTheirTimeAndOutliveTheirCluster", TestRecordsAreKeptForTheirTimeAndOutliveTheirCluster},
		{"AServiceThatWasNeverReportedIsShownAsUnknown", TestAServiceThatWasNeverReportedIsShownAsUnknown},
		{"AServiceTheDatabaseDoesNotKnowCanBeReported", TestAServiceTheDatabaseDoesNotKnowCanBeReported},
		{"ABadStatusReportIsRefusedWhole", TestABadStatusReportIsRefusedWhole},
		{"AWrongMethodIsAnsweredWithTheRightOnes", TestAWrongMethodIsAnsweredWithTheRightOnes},
		{"ARotatedTokenReplacesTheOldOne", TestARotatedTokenReplacesTheOldOne},
		{"AClusterIsRemovedOnlyWhenItIsEmptyAndSilent", TestAClusterIsRemovedOnlyWhenItIsEmptyAndSilent},
		{"ARegionIsRemovedOnlyWhenItIsEmptyAndSilent", TestARegionIsRemovedOnlyWhenItIsEmptyAndSilent},
		{"WhatCanBePutCanBeRead", TestWhatCanBePutCanBeRead},
		{"EachChangeHasOneEntryAndNothingElseHas", TestEachChangeHasOneEntryAndNothingElseHas},
		{"AChangeAndItsEntryAreOneTransaction", TestAChangeAndItsEntryAreOneTransaction},
		{"TheAuditIsReadByObjectActorAndTime", TestTheAuditIsReadByObjectActorAndTime},
		{"ListsAreReadInParts", TestListsAreReadInParts},
		{"EachClusterHasItsSilenceAndLagUntilItIsRemoved", TestEachClusterHasItsSilenceAndLagUntilItIsRemoved},
		{"AnAgentIsTheActorOfWhatItEnds", TestAnAgentIsTheActorOfWhatItEnds},
		{"WhatIsGivenUpIsRemovedWithItsProjects", TestWhatIsGivenUpIsRemovedWithItsProjects},
		{"AGenerationThatIsGivenAgainAfterARestoreIsNotTheOneThatWasLost", TestAGenerationThatIsGivenAgainAfterARestoreIsNotTheOneThatWasLost},
	} {
		t.Run(test.name, test.run)
	}
}

// openEither opens a new store: on PostgreSQL for the subtests of that test, in
// the file elsewhere.
func openEither(t *testing.T, path string) *clusters.Store {
	t.Helper()
	if !strings.HasPrefix(t.Name(), onPostgreSQL+"/") {
		return openStore(t, path)
	}
	return openPostgreSQL(t, postgres.Database(t))
}

func openPostgreSQL(t *testing.T, url string) *clusters.Store {
	t.Helper()
	database, err := db.PostgreSQL{URL: url}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	return &clusters.Store{Database: database}
}

func TestPostgreSQLIsPreparedOnceByMany(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	var group sync.WaitGroup
	stores := make([]*clusters.Store, 4)
	for n := range stores {
		group.Go(func() {
			store, err := db.PostgreSQL{URL: url}.Open(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			stores[n] = &clusters.Store{Database: store}
		})
	}
	group.Wait()
	require.False(t, t.Failed())
	_, _, err := stores[0].RegisterCluster(t.Context(), clusterA, "nyc3")
	require.NoError(t, err)
	for _, store := range stores {
		clusters, err := store.Clusters(t.Context())
		require.NoError(t, err)
		require.Len(t, clusters, 1)
		require.NoError(t, store.Database.Close())
	}

	pool, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	_, err = pool.ExecContext(t.Context(), `INSERT INTO controlplane_schema (version) VALUES (99)`)
	require.NoError(t, err)
	_, err = db.PostgreSQL{URL: url}.Open(t.Context())
	require.ErrorIs(t, err, db.ErrNewerSchema)
}

// TestAStreamThatCannotBeginIsRefusedInTime has a database that hangs, as under a long migration: an agent that
// waits for ever neither backs off nor tries another replica.
func TestAStreamThatCannotBeginIsRefusedInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("long: waits for 15 seconds")
	}
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s := startStreaming(t, func() *clusters.Store { return openPostgreSQL(t, url) })
	token := s.register(clusterA)
	other, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	tx, err := other.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE clusters IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	w := world{t: t, url: s.url}
	began := time.Now()
	got := w.do(http.MethodGet, "/api/v1/clusters/"+clusterA+"/scopes/"+starbase.VersionScope+"/items?watch&heartbeat=1s", token, "")
	require.Equal(t, http.StatusServiceUnavailable, got.status, got.body)
	require.Contains(t, got.body, `"busy"`)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Less(t, time.Since(began), 45*time.Second)
	require.NoError(t, tx.Rollback())
	s.watch(clusterA, token, statesync.Cursor{}).names(s.version(clusterA))
}
